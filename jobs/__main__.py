"""`python -m jobs`: the command line, where the script `cachecast` is not on the path."""

from jobs.cli.main import main

if __name__ == "__main__":
    main()

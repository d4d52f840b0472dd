"""What spark-submit runs, beside `--py-files package.zip`; docs/cluster.md."""

from jobs.cli.main import main

if __name__ == "__main__":
    main()

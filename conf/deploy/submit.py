"""What spark-submit runs, beside `--py-files rooms.zip`; docs/cluster.md."""

from jobs.cli.main import main

if __name__ == "__main__":
    main()

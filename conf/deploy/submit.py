"""What spark-submit runs, beside `--py-files package.zip`; docs/hdfs.md."""

from jobs.cli.main import main

if __name__ == "__main__":
    main()

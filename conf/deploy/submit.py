"""What spark-submit runs, beside `--py-files package.zip`; docs/hdfs.md."""

from cachecast.__main__ import main

if __name__ == "__main__":
    main()

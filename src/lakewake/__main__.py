"""`python -m lakewake`: the same as `lakewake`."""

from lakewake.cli import main

if __name__ == "__main__":
    main()

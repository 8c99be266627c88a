"""`python -m launcher.ranks`: who this process is, and from which variables."""

from launcher.ranks.explanation import main

if __name__ == "__main__":
    main()

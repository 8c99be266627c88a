"""What a run has come to, for people: its page, and the table of its members' results."""

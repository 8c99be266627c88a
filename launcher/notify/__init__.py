"""Messages about runs on the user's phone: webhooks and their secrets, and what `castoff watch` sends."""

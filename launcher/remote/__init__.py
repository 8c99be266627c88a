"""castoff on another machine, over the user's own ssh: `castoff --on NAME VERB …`."""

"""How `castoff train dpo` is started: its configuration and its flags."""

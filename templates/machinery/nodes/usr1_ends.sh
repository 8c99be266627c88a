castoff_prepare() { trap '' USR1; } # it gets it when the script ends the ranks, too, and must not die of that
castoff_on_usr1() {
  # The script's sign to stop, if this file is there; else the program's own, which its launcher has told too.
  if [ -z "$castoff_told" ] && [ -e "$CASTOFF_ATTEMPT_DIR/terminated" ]; then
    castoff_told=1
    castoff_pass_on TERM
  fi
}

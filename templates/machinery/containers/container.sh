# --- Container: what each rank's program runs in --------------------------------------------------
castoff_at_container=(:) # what its parts do
castoff_given=
castoff_inside() { # NAME VALUE of a variable for the inside alone
  export "CASTOFF_GIVEN_$1=$2"
  castoff_given+=" $1"
}
readonly -f castoff_inside

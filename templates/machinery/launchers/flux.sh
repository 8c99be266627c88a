# --- flux run -------------------------------------------------------------------------------------
castoff_launcher_name=flux castoff_end_node='exit 1'
castoff_name_hosts() { :; } # it knows them
castoff_place_ranks() { :; }
readonly -f castoff_name_hosts castoff_place_ranks

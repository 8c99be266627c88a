# It fills node after node, and says of none which it is.
castoff_first=$((castoff_ranks_per_node * castoff_full_nodes)) # of those on nodes with one fewer
NODE_RANK=$((castoff_process < castoff_first ? castoff_process / castoff_ranks_per_node :
  castoff_full_nodes + (castoff_process - castoff_first) / (castoff_ranks_per_node - 1)))

"""One process on a node, the agent, imports modules for all ranks there; each rank starts as a copy of the
agent.
"""

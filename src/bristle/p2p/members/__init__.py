"""Whether a neighbour belongs here: who is a member by whose invitation, and whether it computes the same features."""

"""Share groups: members, and the state of the records that they acquire (KIP-932)."""

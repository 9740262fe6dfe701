"""Who may connect and what they may do: authentication, users, tokens, certificates, and ACLs."""

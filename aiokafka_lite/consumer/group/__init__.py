"""Reading as a member of a group: ``ConsumerGroup`` with its sessions and claims, and the group's side of
``Consumer``.
"""

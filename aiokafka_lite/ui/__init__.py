"""The page of ``aiokafka-lite ui``: a small web application on the loopback interface. Needs the extra ``ui``.

``application`` is the ASGI application behind its ``guard``, ``views`` asks the cluster, ``records`` reads and decodes,
and ``history`` remembers the lag of groups for the charts. The files of the page itself are in ``static``, without a
build.
"""

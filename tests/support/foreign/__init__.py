"""Stand-ins for clusters of Doris and StarRocks: what their sources say that these do, over real sockets."""

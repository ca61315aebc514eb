"""Access: keys and the tenants they stand for, signed links, bounded bodies, limits of connections."""

"""File I/O that yields to what matters: priorities, queue depth by device, quotas, and what the kernel offers."""

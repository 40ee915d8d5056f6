"""What every store must do, over SQLite and a real PostgreSQL server, and what happens when their databases break."""

from tests.servers import postgres_server_url, postgres_url

__all__ = ["postgres_server_url", "postgres_url"]

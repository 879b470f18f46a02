"""A process that inserts, updates and deletes until its standard input ends; says when it has begun.

Rows with even ids are there all the time, and only their `n` changes. Odd ids come and go.
"""

import random
import sys
import threading

from sqlalchemy import create_engine, text


def main(url: str, top: int) -> None:
    chance = random.Random(7)
    engine, stop, done = create_engine(url), threading.Event(), 0
    threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    while not stop.is_set():
        with engine.begin() as connection:
            odd = 2 * chance.randrange(top) + 1
            match chance.randrange(4):
                case 0:
                    connection.execute(text("DELETE FROM t WHERE id = :id"), {"id": odd})
                case 1:
                    even = 2 * chance.randrange(top // 2)
                    connection.execute(text("UPDATE t SET n = n + 1 WHERE id = :id"), {"id": even})
                case _:
                    values = {"id": odd, "grp": f"g{odd % 7}", "n": 0}
                    connection.execute(text("DELETE FROM t WHERE id = :id"), {"id": odd})
                    connection.execute(text("INSERT INTO t (id, grp, n) VALUES (:id, :grp, :n)"), values)
        done += 1
        if done == 1:
            sys.stdout.write("writing\n")
            sys.stdout.flush()
    engine.dispose()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

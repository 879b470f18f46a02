"""`dw keys`: who may publish and read through the gateway."""

from datetime import datetime
from typing import Annotated

import typer

from dw_platform.cli.opening import open_platform
from dw_platform.cli.output import ConfigOption, JsonOption, emit_json, emit_table, say
from dw_platform.foundation import parse_duration
from dw_platform.gateway.keys import ApiKey, create_key, list_keys, revoke_key

app = typer.Typer(help="Make, list and revoke the gateway's API keys.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(help="Name of the key: letters, digits, '_' and '-'.")]


@app.command(short_help="Make a key; it is shown once.")
def create(
    name: NameArgument,
    config: ConfigOption = None,
    *,
    topic: Annotated[
        list[str] | None,
        typer.Option(help="Topic, or pattern such as 'orders.*'; repeat it for several. All by default."),
    ] = None,
    right: Annotated[
        list[str] | None, typer.Option(help="publish or read; repeat it for both. publish by default.")
    ] = None,
    quota: Annotated[float | None, typer.Option(help="Most records a second; unlimited by default.")] = None,
    expires: Annotated[
        str | None, typer.Option(help="How long it counts, such as 90d; until it is revoked by default.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Make a key and show it, this once: only its hash is kept."""
    lasts = None if expires is None else parse_duration(expires)
    with open_platform(config) as platform:
        record, key = create_key(
            platform.store,
            name,
            clock=platform.clock,
            topics=tuple(topic or ("*",)),
            rights=tuple(right or ("publish",)),
            quota=quota,
            expires_in=lasts,
        )
    if json:
        emit_json({"key": key, **_as_json(record, record.created_at)})
        return
    say(key)
    until = f"until {record.expires_at:%Y-%m-%d %H:%M} UTC" if record.expires_at else "until it is revoked"
    say(f"It may {' and '.join(record.rights)} {', '.join(record.topics)}, {until}. It is not shown again.")


@app.command("list", short_help="List the keys, without their secrets.")
def list_all(config: ConfigOption = None, *, json: JsonOption = False) -> None:
    """List the keys with what each allows."""
    with open_platform(config) as platform:
        keys, now = list_keys(platform.store), platform.clock.now()
    if json:
        emit_json([_as_json(key, now) for key in keys])
    elif keys:
        columns = ["name", "rights", "topics", "records/s", "created (UTC)", "expires (UTC)", "counts"]
        emit_table("", columns, [_row(key, now) for key in keys])
    else:
        say("There are no keys yet. `dw keys create NAME` makes one.")


@app.command(short_help="Take a key back.")
def revoke(name: NameArgument, config: ConfigOption = None) -> None:
    """Take a key back; gateways that run refuse it within a second."""
    with open_platform(config) as platform:
        revoke_key(platform.store, name)
    say(f"{name} is revoked.")


def _as_json(key: ApiKey, now: datetime) -> dict[str, object]:
    return {
        "name": key.name,
        "topics": list(key.topics),
        "rights": list(key.rights),
        "quota": key.quota,
        "created_at": key.created_at.isoformat(),
        "expires_at": key.expires_at.isoformat() if key.expires_at else None,
        "expired": key.expired(now),
    }


def _row(key: ApiKey, now: datetime) -> tuple[object, ...]:
    expires = f"{key.expires_at:%Y-%m-%d %H:%M}" if key.expires_at else None
    created = f"{key.created_at:%Y-%m-%d %H:%M}"
    quota = None if key.quota is None else f"{key.quota:,g}"
    return (key.name, ", ".join(key.rights), ", ".join(key.topics), quota, created, expires, not key.expired(now))

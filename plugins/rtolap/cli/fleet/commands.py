"""The mounted commands of `rtolap fleet`.

Exit codes: 0 done; 1 an error, reported on stderr; 3 a broker that is not well was found, or
something that is not as declared, or a plan leaves out a part of what it was asked for.
"""

from __future__ import annotations

import typer

from rtolap.cli.fleet.audit import audit
from rtolap.cli.fleet.brokers import brokers, cordon, drain, join, repair, retire, uncordon
from rtolap.cli.fleet.clients import clients
from rtolap.cli.fleet.logs import logs
from rtolap.cli.fleet.moves import cancel, moves, pause, resume, submit, throttle
from rtolap.cli.fleet.plan import app as plan_app
from rtolap.cli.fleet.policies import policies
from rtolap.cli.fleet.quotas import quotas
from rtolap.cli.fleet.serve import serve
from rtolap.cli.fleet.slow import slow
from rtolap.cli.fleet.snapshot import snapshot
from rtolap.cli.fleet.stages import stages
from rtolap.cli.fleet.tiers import tiers

app = typer.Typer(no_args_is_help=True, help="Kafka brokers: audit, plans, moves, monitoring.")
for _command in (
    *(snapshot, tiers, stages, slow, clients, logs, audit, quotas),
    *(submit, moves, throttle, pause, resume, cancel, serve),
    *(brokers, join, cordon, uncordon, drain, repair, retire, policies),
):
    app.command()(_command)
app.add_typer(plan_app, name="plan")

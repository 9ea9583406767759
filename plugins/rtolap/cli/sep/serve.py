"""`rtolap sep serve`: one process of a subscription; of several, one leads, or each has its shares."""

from __future__ import annotations

import asyncio
import signal
from typing import Annotated

import typer

from rtolap.base.addresses import PORT_MAX
from rtolap.base.clock import SystemClock
from rtolap.cli.output import end_now
from rtolap.cli.sep.cluster import ClusterOption, source_of
from rtolap.cli.serving import ServedMetricsPortOption, service_settings
from rtolap.metadata.zookeeper import ZooKeeperStore
from rtolap.sep.consumer.assembly import host_name, open_process
from rtolap.sep.consumer.metrics import ConsumerMetrics
from rtolap.sep.consumer.process import SubscriptionProcess
from rtolap.sep.consumer.share_metrics import show_shares
from rtolap.sep.consumer.sharing import SharedProcess
from rtolap.sep.delivery.state import show_delivery
from rtolap.servers.metrics_server import MetricsServer


def serve(
    name: Annotated[str, typer.Argument(help="Name of the subscription.")],
    cluster: ClusterOption = "",
    host: Annotated[
        str, typer.Option(help="Name by which region servers reach this host. Default: its own name.")
    ] = "",
    bind: Annotated[str, typer.Option(help="Address on which the ports listen.")] = "0.0.0.0",
    metrics_port: ServedMetricsPortOption = 0,
    port: Annotated[
        list[int] | None,
        typer.Option(
            min=0,
            max=PORT_MAX,
            help="Port to listen on. Repeatable. Default: free ones, as many as declared.",
        ),
    ] = None,
) -> None:
    """Receive the edits of a subscription and deliver them, in this process, until it is stopped.

    Of several processes of one subscription, as many as it declares as `consumers` are active at once; the
    others stand by and take over.
    """
    settings = service_settings()
    store = ZooKeeperStore(
        source_of(cluster).zookeeper, root="/", session_timeout_s=settings.session_timeout_s
    )
    metrics = ConsumerMetrics()
    metrics_server = MetricsServer.of_settings(metrics.registry, settings, metrics_port)
    try:
        process = open_process(
            name,
            store,
            settings,
            SystemClock(),
            host=host or host_name(),
            bind=bind,
            ports=port or (),
            metrics=metrics,
        )
        if isinstance(process, SharedProcess):
            show_shares(metrics.registry, process)
        else:
            show_delivery(metrics.registry, lambda: process.delivery)
        asyncio.run(_run(process))
        is_drained = not isinstance(process, SharedProcess) or process.drained
    finally:
        metrics_server.close()
        store.close()
    if not is_drained:
        end_now()


async def _run(process: SubscriptionProcess | SharedProcess) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, process.stop)
    await process.run()

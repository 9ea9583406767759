"""Subscriptions are made and dropped: short calls to HBase. Both may be repeated safely."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import BaseOperator, BaseOperatorLink, Context

from rtolap.airflow.declared import defined_subscriptions
from rtolap.airflow.errors import final_at_once
from rtolap.airflow.hooks.hbase_connection import HBASE_DEFAULT
from rtolap.airflow.hooks.on_demand import open_replication
from rtolap.airflow.links import PageLink
from rtolap.base.errors import NotFound
from rtolap.base.settings import Settings


class HBaseOperator(BaseOperator):
    """Base of calls about one subscription, to the HBase of the connection `hbase_conn_id`."""

    template_fields: Sequence[str] = ("subscription",)
    operator_extra_links: tuple[BaseOperatorLink, ...] = (PageLink(),)

    def __init__(self, *, subscription: str, hbase_conn_id: str = HBASE_DEFAULT, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.subscription = subscription
        self.hbase_conn_id = hbase_conn_id


class CreateSubscriptionOperator(HBaseOperator):
    """Creates a subscription of `include/sep`, on the cluster that its file names. A subscription with the
    same definition stays as it is; one that an earlier try left unfinished is finished. Returns what HBase
    does not ship of it.
    """

    ui_color = "#e4f0d8"

    def execute(self, context: Context) -> list[str]:
        include_dir = Settings().include_dir
        with final_at_once():
            defined = defined_subscriptions(include_dir).get(self.subscription)
            if defined is None:
                raise NotFound(f"no file in {include_dir} defines a subscription {self.subscription}")
        with final_at_once(), open_replication(self.hbase_conn_id) as replication:
            warnings = replication.create(defined)
        for warning in warnings:
            self.log.warning("%s: %s", self.subscription, warning)
        return warnings


class DropSubscriptionOperator(HBaseOperator):
    """Drops a subscription, which may be gone already: from the cluster that its file in `include/sep` names,
    or without a file from the connection's. Edits that are not delivered yet never will be.
    """

    ui_color = "#f4dcdc"

    def execute(self, context: Context) -> None:
        with final_at_once():
            defined = defined_subscriptions(Settings().include_dir).get(self.subscription)
        with final_at_once(), open_replication(self.hbase_conn_id) as replication:
            try:
                replication.drop(self.subscription, defined)
            except NotFound as error:
                self.log.info("nothing is left to drop: %s", error)

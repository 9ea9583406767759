"""Topics of dead letters as watched assets, by the message-queue trigger of Airflow's Kafka provider.

The trigger fires for the next record of the topic and commits its offset. The task that is started reads the
letters from the topic itself (`TellDeadLettersOperator`), from where it has told of last: an event that is
lost with a triggerer costs time, and no letter. No other module imports this one: it loads the providers'
queues.
"""

from __future__ import annotations

from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger
from airflow.sdk import Asset, AssetWatcher

from rtolap.airflow.triggers.dead_letters import LETTER

POLL_S = 1.0
PAUSE_S = 5.0


def dead_letters(topic: str, kafka_conn_id: str) -> Asset:
    """Return the asset of a topic of dead letters, for schedules: an event when a letter comes.

    `kafka_conn_id` holds settings of consumers, a `group.id` of its own among them. The topic need not be
    there yet: it is made for the first letter. It is watched as a pattern, which finds it then.
    """
    trigger = MessageQueueTrigger(
        scheme="kafka",
        topics=[f"^{topic.replace('.', '[.]')}$"],
        kafka_config_id=kafka_conn_id,
        apply_function=LETTER,
        poll_timeout=POLL_S,
        poll_interval=PAUSE_S,
    )
    return Asset(
        name=f"rtolap_dead_letters_{topic}",
        uri=f"x-rtolap://kafka/{kafka_conn_id}/{topic}",
        watchers=[AssetWatcher(name=f"rtolap_dead_letters_{topic}", trigger=trigger)],
    )

import pytest
from kafka import errors as kafka_errors
from rtolap.base.errors import Forbidden, NotFound, Refused, RtolapError, Unauthorized, Unavailable
from rtolap.kafka.administration.errors import is_passing, of_code, translated
from rtolap.kafka.clusters import KafkaCluster

CLUSTER = KafkaCluster(
    "guarded",
    {
        "bootstrap.servers": "b:9093",
        "security.protocol": "SASL_SSL",
        "sasl.username": "ada",
        "sasl.password": "secret word",
    },
)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (3, NotFound),  # no such topic or partition
        (9, NotFound),  # the broker has no such replica
        (57, NotFound),  # no such log directory
        (29, Forbidden),
        (31, Forbidden),
        (58, Unauthorized),
        (35, Refused),  # an older broker
        (39, Refused),  # brokers that are not there
        (41, Unavailable),  # another controller
        (7, Unavailable),  # too slow
        (12345, Refused),
    ],
)
def test_what_a_broker_answers_has_its_type(code: int, kind: type[RtolapError]) -> None:
    error = of_code(code, "told so", "move replicas", "Alter on the cluster", CLUSTER)
    assert type(error) is kind
    assert "secret word" not in str(error)


def test_no_error_is_none() -> None:
    assert of_code(0, None, "move replicas", "Alter on the cluster", CLUSTER) is None


def test_a_missing_right_is_named_with_who_misses_it() -> None:
    error = of_code(31, None, "move replicas", "Alter on the cluster", CLUSTER)
    assert "User:ada" in str(error)
    assert "Alter on the cluster" in str(error)


def test_secrets_are_not_repeated() -> None:
    error = translated("connect", "to be let in", OSError("secret word refused"), CLUSTER)
    assert isinstance(error, Unavailable)
    assert "secret word" not in str(error)


def test_what_passes_is_tried_again_and_what_does_not_is_not() -> None:
    assert is_passing(kafka_errors.NotControllerError())
    assert is_passing(kafka_errors.KafkaConnectionError())
    assert is_passing(ConnectionRefusedError())
    assert not is_passing(kafka_errors.UnknownTopicOrPartitionError())
    assert not is_passing(kafka_errors.ClusterAuthorizationFailedError())

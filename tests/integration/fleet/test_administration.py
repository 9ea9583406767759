import pytest

from tests.support.fleet.administration_contract import AdministrationContract, World

pytestmark = pytest.mark.integration


class TestKafkaAdministration(AdministrationContract):
    @pytest.fixture
    def world(self, fleet_world: World) -> World:
        return fleet_world

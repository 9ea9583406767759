"""Checksums of the jars of the stack's own set-up: SHA-256 of each, in the format of `sha256sum`.

Whoever stands between this machine and Maven Central could serve others. After a change of
`artifacts._DEPENDENCIES`, `python -m rtolap.stack.jar_checksums FOLDER` prints those of a fetched folder.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path

from rtolap.base.errors import Corrupted

STACK = """
22d1d4316c4ec13a68b559e98c8256d69071593731da96136640f864fa14fad8  kafka/HdrHistogram-2.2.2.jar
65ceb669d88f63306c680f8088bbf765bbca72d288a61a03703000076c3d3f56  kafka/argparse4j-0.7.0.jar
ec411dfdf0c03f25218648ce89861630b71680e5858a9a7278ebac8e55cab3d7  kafka/caffeine-3.2.0.jar
9e44ba68ec9a3f21286fa2a8bbb003b735c0f69101bb43144b79f4f8aaa74709  kafka/commons-beanutils-1.11.0.jar
eeeae917917144a68a741d4c0dff66aa5c5c5fd85593ff217bced3fc8ca783b8  kafka/commons-collections-3.2.2.jar
e0b2b980a84fc6533c5ce291f1917b32c507f62bcad64198fff44368c2196a3d  kafka/commons-digester-2.1.jar
6d7a744e4027649fbb50895df9497d109f98c766a637062fe8d2eabbb3140ba4  kafka/commons-logging-1.3.5.jar
ed74711a78d793ca37f6075e4a1e93d107233dfd20d0bb17e32bad88d38e56aa  kafka/commons-validator-1.10.1.jar
23028a3fd006e530bf495f551083208187cafd8f80624d048eba56442f16a50e  kafka/hash4j-0.22.0.jar
53ca085f4a150f703f49e1aabd935bd03b43e1ea3d55d135438292af22cef56b  kafka/jackson-annotations-2.21.jar
12e8655b100267b44d0f14d01b1f5082a5105e616174dc4307be1a761e92407b  kafka/jackson-core-2.21.2.jar
8c982f01f148d805f0aaac2339011244757e0df7c6ff8951f2fa3f433b8ed849  kafka/jackson-databind-2.21.2.jar
682f8c7977e02a42748426bf54946e32e52e2f80b84b6642801ab12bd541368a  kafka/jackson-dataformat-csv-2.21.2.jar
d25551812fa0c14f37cabaa9401e63eadcea42ce36311183af5622d5bc8a1bc7  kafka/jackson-dataformat-yaml-2.21.2.jar
e581bbf3fc5622d16b57366dd41e10fc56921fb202879de2ef487f87dd9b30e7  kafka/jackson-datatype-jdk8-2.21.2.jar
df26cc58f235f477db07f753ba5a3ab243ebe5789d9f89ecf68dd62ea9a66c28  kafka/jopt-simple-5.0.4.jar
7314af50cde9c99e8eaf43eee617a23edcc6bb43036221064355094999d837ef  kafka/jose4j-0.9.6.jar
1fad6e6be7557781e4d33729d49ae1cdc8fdda6fe477bb0cc68ce351eafdfbab  kafka/jspecify-1.0.0.jar
52501b7b47510c66f898871adaf6d2968ab7246561d44ced43643a8a587f0b36  kafka/kafka-clients-4.3.1.jar
66a86b8c89718216ffa72fe4e44b9d1bdf3472e4cb9200c36a0742a25febbdba  kafka/kafka-coordinator-common-4.3.1.jar
4ab56d002e1624185c874199e9e0ffb243dbeb9f68b4d0cadf48ce2f617a1126  kafka/kafka-group-coordinator-4.3.1.jar
d81bc1a3739ff6c9b21815baae00022306342a16d3d94e6a2621201b9980a30d  kafka/kafka-group-coordinator-api-4.3.1.jar
4d73a96c6474a4ebdd67a1cee14da1a94cfd6bb9e6e252685ba5667d8ab7f898  kafka/kafka-metadata-4.3.1.jar
46abbf89806dd22d848e997cdfb1431524cab4ec88e38a7d2806e20b24a70609  kafka/kafka-raft-4.3.1.jar
01d736599ec3b0cdbb0480c15219170b28cdae189785e7f0c6f1f26e528eaebc  kafka/kafka-server-4.3.1.jar
d7c719f749579a399011f0df7414de8a78f10f074a6122caa550fdb141351575  kafka/kafka-server-common-4.3.1.jar
8ceeed7346127e652ea5c650b217890aaff14919f967d27fadce420745bd3066  kafka/kafka-share-coordinator-4.3.1.jar
97e3facddd2914a58f28ec91ef35f8da69963eab3651196e97f487924f6dac98  kafka/kafka-storage-4.3.1.jar
bc2b22639fa554494461d101d599e01bae840d97c4f46e18fdf3d2fe41a47098  kafka/kafka-storage-api-4.3.1.jar
dcf6785742e0c8ab11a0fc09c62f1192e11e997dc629669a8db82aa40d933c31  kafka/kafka-tools-api-4.3.1.jar
c64aaa2a88d8fd382c4800204872917686e542043c7916c9e8797d939d8eb313  kafka/kafka-transaction-coordinator-4.3.1.jar
b098abef5ff878e76f60cd6c559b9baa5663ccb1b55f2837558b22c329d32423  kafka/kafka_2.13-4.3.1.jar
c4b642a7f047275215de117e0e3847eb2c7711d84a0aa7433e7b3c096daf341d  kafka/log4j-api-2.25.4.jar
10fee2c0485d54fa44ee75d314f6295508f7b932281873db61a91b88073200e6  kafka/log4j-core-2.25.4.jar
252dabd586d22149a31661a8afc1a50747714eb1a298bd4a6e780c8c91a13866  kafka/lz4-java-1.10.2.jar
6b7a14a6f34c10f8683f7b5e2f39df0f07b58c7dff0e468ebbc713905c46979c  kafka/metrics-core-2.2.0.jar
2bbeef5797a241300c4f7513cd546239629ed7deda4fc0c31df90bb95f5f13ef  kafka/pcollections-4.0.2.jar
7b52c72156dd7f98b3237a5b35c1d34fba381b21048c89208913ad80a45dfbd7  kafka/re2j-1.8.jar
4e85d96ff7bc7dc627985523c3541b9917aaa08e956391380c42db21a2c4e5a0  kafka/scala-library-2.13.18.jar
0ad0c3f4d89d538b3b6c300158555e266aa69cf1b5f6522aba8b5bad238eb994  kafka/scala-logging_2.13-3.9.6.jar
6935ff1982b2ac93d695f15aa66921be2f602921277afe002f018fd8c7d6e29b  kafka/scala-reflect-2.13.18.jar
d3ef575e3e4979678dc01bf1dcce51021493b4d11fb7f1be8ad982877c16a1c0  kafka/slf4j-api-1.7.36.jar
e6682acf1ace77508ef13649cbf4f8d09d2cf5457bdb61d25ffb6ac0233d78dd  kafka/snakeyaml-2.5.jar
4c766cb3f855415ee734b2392949a0b6f12a60879334a74518deaf6270d32e36  kafka/snappy-java-1.1.10.7.jar
b6c3237e24b8252a5a9c3a0e1ae30ef8f323412e74bd358548b7a9e527d676df  kafka/zstd-jni-1.5.6-10.jar
f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f  spark/commons-pool2-2.13.1.jar
014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8  spark/kafka-clients-3.9.2.jar
64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705  spark/spark-sql-kafka-0-10_2.13-4.2.0.jar
f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767  spark/spark-token-provider-kafka-0-10_2.13-4.0.0.jar
"""  # noqa: E501

JOLOKIA = """
38be4960fce575b355e9142f3c3cb89e54fb52bbbef4e1d48a5a6a1df8adb9bf  jolokia/jolokia-agent-jvm-2.1.2-javaagent.jar
"""  # noqa: E501

EXPORTER = """
7d61f737fd661610ccc14aea79764faa1ea94a340cbc8f0029b3d2edea3d80c1  exporter/jmx_prometheus_javaagent-1.0.1.jar
"""


def parsed(text: str) -> dict[str, str]:
    """Path below the folder → digest."""
    return {path: digest for digest, path in (line.split() for line in text.split("\n") if line)}


def verify(folder: Path, expected: Mapping[str, str]) -> None:
    """Raises Corrupted, naming a jar that is another one, that is missing or that nobody expects."""
    found = measured(folder)
    for path in sorted(found.keys() | expected.keys()):
        if found.get(path) != expected.get(path):
            raise Corrupted(
                f"the jar {path} is not the one that was to be fetched",
                expected=f"SHA-256 {expected[path]}" if path in expected else "no such jar",
                found=found.get(path, "none"),
                action="look at the mirror (RTOLAP_MAVEN_MIRROR): nothing of what was fetched is kept",
            )


def measured(folder: Path) -> dict[str, str]:
    return {jar.relative_to(folder).as_posix(): _sha256(jar) for jar in sorted(folder.glob("*/*.jar"))}


def _sha256(jar: Path) -> str:
    with jar.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    for path, digest in measured(Path(sys.argv[1])).items():
        print(f"{digest}  {path}")

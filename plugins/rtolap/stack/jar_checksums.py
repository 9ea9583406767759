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
HBASE = """
fff0036594eb62519fa4e8f804b98e56df42e256e680d30ac2dcd148d08b3bdf  hbase/agrona-1.12.0.jar
92654f493ecfec52082e76354f0ebf87648dc3d5cec2e3c3cdb947c016747a53  hbase/animal-sniffer-annotations-1.17.jar
0addec670fedcd3f113c5c8091d783280d23f75e3acb841b61a9cdb079376a08  hbase/aopalliance-1.0.jar
3bfbb397b06f63a2a0a361f62ed32cf199bd92ddd48ea99281f4987edec9777b  hbase/audience-annotations-0.13.0.jar
eeba11b77070b9aa6337d886fdf778f6695f6c4c3dcfd2a02389925c885079fa  hbase/avro-1.11.4.jar
add5915e6acfc6ab5836e1fd8a5e21c6488536a8c1f21f386eeb3bf280b702d7  hbase/bcprov-jdk18on-1.78.1.jar
1f67db1906b0db1c7e0d79c0bfe347fb04f0496098832994654b12ef79dfa1a9  hbase/caffeine-2.8.1.jar
314fcd1147f19a52a572a5e8882fa496548445071bccba0c54b7beea001caa30  hbase/checker-qual-3.1.0.jar
d3d530d0f28fd0fbbffe2b0b338f70e8cb96f1605579e2e3abd4db29cac24e69  hbase/commons-cli-1.9.0.jar
b3e9f6d63a790109bf0d056611fbed1cf69055826defeb9894a71369d246ed63  hbase/commons-codec-1.15.jar
1df8b9430b5c8ed143d7815e403e33ef5371b2400aadbe9bda0883762e0846d1  hbase/commons-collections4-4.4.jar
27bb5d40f37c3bb7205b4a0540247df057715e9f6cbbd97d626ab8b50318bb04  hbase/commons-compress-1.26.1.jar
d5642131fbd7d85e9a4b824c52711528a1dde0a7866dfbd22a8711dbabd9eabc  hbase/commons-configuration2-2.10.1.jar
44dc28551cdba731658090d9b10d2eead9839c269d70cdcd7d56c0423df5227f  hbase/commons-crypto-1.1.0.jar
fd63b583fd3e8baeae22efacbd5a4f91c1fd97f56248e62e2615efa7b81daeaa  hbase/commons-daemon-1.0.13.jar
f3ca0f8d63c40e23a56d54101c60d5edee136b42d84bfb85bc7963093109cf8b  hbase/commons-io-2.18.0.jar
4eeeae8d20c078abb64b015ec158add383ac581571cddc45c68f0c9ae0230720  hbase/commons-lang3-3.18.0.jar
66d3c980470b99b0c511dad3dfc0ae7b265ec1fb144e96bc0253a8a175fd34d9  hbase/commons-logging-1.3.0.jar
1e56d7b058d28b65abd256b8458e3885b674c1d588fa43cd7d1cbb9c7ef2b308  hbase/commons-math3-3.6.1.jar
e3c1566f821b84489308cd933f57e8c00dd8714dc96b898bef844386510d3461  hbase/commons-net-3.9.0.jar
770cd903fa7b604d1f7ef7ba17f84108667294b2b478be8ed1af3bffb4ae0018  hbase/commons-text-1.10.0.jar
345ec409bc026e114e8fd471a9273f631a3a494f0e091b092c1ac94499ddee4f  hbase/curator-client-5.2.0.jar
9a6b6ec713bd4145fa6912f2197a1f642806c10d4ba87561dfec551f6eaec4f1  hbase/curator-framework-5.2.0.jar
45e755b95763c9db8b8c465098ec72a33ee7c82132145a32dc9844d699c5b7f3  hbase/curator-recipes-5.2.0.jar
1524ed31f13bcabee1b6146e67be30c6317cb94fcd0c7c2f7c7a1f3e82087c51  hbase/disruptor-3.4.4.jar
f9def222ef5c0406216663ca45ca0950781541e22558b217aa779f36fbd24ab5  hbase/dnsjava-3.6.1.jar
a56e782b5b50811ac204073a355a21d915a2107fce13ec711331ad036f660fcc  hbase/error_prone_annotations-2.41.0.jar
d084bef9cd07a8537a1753e4850a69b7e8bab1d1e22e9f3a1e4826309a7a2336  hbase/failureaccess-1.0.jar
c96d60551331a196dac54b745aa642cd078ef89b6f267146b705f2c2cbef052d  hbase/gson-2.9.0.jar
63b09db6861011e7fb2481be7790c7fd4b03f0bb884b3de2ecba8823ad19bf3f  hbase/guava-27.0-jre.jar
a21e50ffbb67e7adc5b46cf7b9e1a480f1e0f04fd4201ddb1c65da91290601af  hbase/guice-4.2.3.jar
57f16a367c5cd200c427591cce5de86146369fcdd90ea72e8296793927a4324d  hbase/guice-servlet-4.2.3.jar
48fd931eb47c3b93b7cd1943d2fb075549fc17b1cb2739182498ef198b853d58  hbase/hadoop-annotations-3.4.2.jar
ea907ce5a1b7ffdfd51e4fdd15e6671c551c37f3e5b9029f42e3f2fa81d42769  hbase/hadoop-auth-3.4.2.jar
043c1d24cde62ef170bb7ee5d5293466a900ece7fe764f1d6e25f78f8b408c3a  hbase/hadoop-common-3.4.2.jar
669ce9633269611ba2abdcda6251b6f030a48f3480f0727856c64a97d8ec7986  hbase/hadoop-distcp-3.4.2.jar
8b4121fa56c67fd66204c6b72e92fc4a3aa93981424b4db610c7a5a112d8066e  hbase/hadoop-hdfs-3.4.2.jar
5097203bfa7713a914e8a2d526661df950b9890047aee9c690f387fa4321d660  hbase/hadoop-hdfs-client-3.4.2.jar
5ce265b1e742c6a1c10c251421491b9a12fc9738c3036ffa3720c25544bbd587  hbase/hadoop-mapreduce-client-core-3.4.2.jar
a5dd4b1ca2521ad66cc555f784c4d35927171ed04d263d4b233cebab745430b5  hbase/hadoop-shaded-guava-1.4.0.jar
ae76613b89f4b983c2a09962d9b30365170395a594e97e6f28f019ced3c482a5  hbase/hadoop-shaded-protobuf_3_25-1.4.0.jar
037c3c32cba97f2da0799b2286443ba7e68daa8b175577d7a59c87b68f29812b  hbase/hadoop-yarn-api-3.4.2.jar
65c13b9c904d7726f15f7e003049b3d141ef129324aa763ab1dfb33f45e55ee2  hbase/hadoop-yarn-client-3.4.2.jar
3a59085e6477c5963e201c1ff1d8c53168510fe5169ab46770e8af5ac59c6a6c  hbase/hadoop-yarn-common-3.4.2.jar
552fc16b8632ce2116cb2dac09072e2258368accc3461986136cc6d58715450a  hbase/hbase-asyncfs-2.6.4-hadoop3.jar
ab1dc6d02364f6774c0255af81ebdeb5bcfab616330c15cbfd74b31b4dab0d5b  hbase/hbase-client-2.6.4-hadoop3.jar
2a26897d449c8a83deccac41122faa3459e74167a3537acf54dcb36d7dcc0f52  hbase/hbase-common-2.6.4-hadoop3.jar
2ba649800c05f0a837ea9fdf6fc550500be0baa037bdb13213121b99fe153221  hbase/hbase-hadoop-compat-2.6.4-hadoop3.jar
b50b7c736c6a63572d4c5c4c4611b8caf7afaec635c84997ee34d2f051df59c0  hbase/hbase-hadoop2-compat-2.6.4-hadoop3.jar
0017a53b44e6c782837ce52a4ddecbe4a04111435200d0d00de26b5ff35f3ccf  hbase/hbase-http-2.6.4-hadoop3.jar
cd90e6372259f988ca98c4a519efb8002070fcc65df972ee678d28ca9b188608  hbase/hbase-logging-2.6.4-hadoop3.jar
c1bdeeb6ed0744495a36b6ad24efb2a07f8f34070dea5d0b4d9eb46282b4cad8  hbase/hbase-metrics-2.6.4-hadoop3.jar
e0df298ebedeb5b53eb94b28b567a0e5ad00f4f9fcc9890a2c20107db6d6815a  hbase/hbase-metrics-api-2.6.4-hadoop3.jar
376b0d83bd3a5cdaa83798e1031427dcb8d3a63e5764b2b941838fa9fe232d6f  hbase/hbase-procedure-2.6.4-hadoop3.jar
9dab4f92dcfb3dbcdbdf965192fd2f3e197898486342e05f437822b2c9575eb8  hbase/hbase-protocol-2.6.4-hadoop3.jar
520f5117b0579ad5bae95f663958cda361703112e8b729d74f4a97439552442e  hbase/hbase-protocol-shaded-2.6.4-hadoop3.jar
bd2b8d69018646b1a1199298295a60aa5834208fc2678b4523e91fce2718f957  hbase/hbase-replication-2.6.4-hadoop3.jar
b0c5f27cbbdd848ce744e9ab4b27b4097303cae2ec023e5ca4072b7116fac268  hbase/hbase-server-2.6.4-hadoop3.jar
70829d234aba98778d6bf2c01214df65329c4b1ab9160ad55e723e05ba0d63f6  hbase/hbase-shaded-gson-4.1.12.jar
241eb0247dc40f81a68c70cb7c78a74e585270156988df28feaaf2c05a18050e  hbase/hbase-shaded-jersey-4.1.12.jar
ae11775197388f6941555e85f78d868a4bbc16f79d3fe034a3f448286f8effe1  hbase/hbase-shaded-jetty-4.1.12.jar
bdc1795d4db5abff2773cfb51275f2a6520855af8b15681573c480f67a566dd7  hbase/hbase-shaded-miscellaneous-4.1.12.jar
513cb2be2480e3f10caf46e5683e4b8266fb427c688973ca01281790b2fcf783  hbase/hbase-shaded-netty-4.1.12.jar
59ef2afbc81a2992fa1f3ade5c184af9008a0ef88887634056158d660d7f55d9  hbase/hbase-shaded-protobuf-4.1.12.jar
f4da87cf67563d238ad4d1830e1d2d8caf044896b8c29fa0ce603e19bdb2c0f4  hbase/hbase-unsafe-4.1.12.jar
585fe126fc2efca294969a62806b67685b31747061f6538970eeb3149692cf17  hbase/hbase-zookeeper-2.6.4-hadoop3.jar
6fe9026a566c6a5001608cf3fc32196641f6c1e5e1986d1037ccdbd5f31ef743  hbase/httpclient-4.5.13.jar
e06e89d40943245fcfa39ec537cdbfce3762aecde8f9c597780d2b00c2b43424  hbase/httpcore-4.4.13.jar
2994a7eb78f2710bd3d3bfb639b2c94e219cedac0d4d084d516e78c16dddecf6  hbase/j2objc-annotations-1.1.jar
3cacef714a89f3d68b69fa11263afa55a6aa2fdef1fff93ded22caa16b54687c  hbase/jackson-annotations-2.12.7.jar
aa77eaf29293a868c47372194f7c5287d77d9370b04ea25d3fffc1e4904b5880  hbase/jackson-core-2.19.2.jar
3f504cac405ce066d5665ff69541484d5322f35ac7a7ec6104cf86a01008e02d  hbase/jackson-databind-2.12.7.1.jar
b91cdb52f41485aaf0d3518852bbdfcdb9e7033b12cc412eb7f35bd06c9f33d4  hbase/jackson-jaxrs-base-2.12.7.jar
ed6a6a17f423f53af100ff3b5be56e096727e9bc86517667f59496583cba85d5  hbase/jackson-jaxrs-json-provider-2.12.7.jar
84686ef549abf053ee3632925b024be3f330bc6f34f7e166f0537799e7f90dbd  hbase/jackson-module-jaxb-annotations-2.12.7.jar
8b0a0f52fa8b05c5431921a063ed866efaa41dadf2e3a7ee3e1961f2b0d9645b  hbase/jakarta.activation-api-1.2.1.jar
85fb03fc054cdf4efca8efd9b6712bbb418e1ab98241c4539c8585bbc23e1b8a  hbase/jakarta.annotation-api-1.3.5.jar
5e88c123b3e41bca788b2683118867d9b6dec714247ea91c588aed46a36ee24f  hbase/jakarta.inject-2.6.1.jar
b42d42428f3d922c892a909fa043287d577c0c5b165ad9b7d568cebf87fc9ea4  hbase/jakarta.validation-api-2.0.2.jar
69156304079bdeed9fc0ae3b39389f19b3cc4ba4443bc80508995394ead742ea  hbase/jakarta.xml.bind-api-2.3.2.jar
0dc41d463124b3815d0ce2ce8064b00b2ed0237c187ab277e1052ec7c82ba28d  hbase/jamon-runtime-2.4.1.jar
eba37290994b5e4868f3af98ff113f6244a6b099385d9ad46881307d3cb01aaf  hbase/javassist-3.30.2-GA.jar
43fdef0b5b6ceb31b0424b208b930c74ab58fac2ceeb7b3f6fd3aeb8b5ca4393  hbase/javax.activation-api-1.2.0.jar
5909b396ca3a2be10d0eea32c74ef78d816e1b4ead21de1d78de1f890d033e04  hbase/javax.annotation-api-1.2.jar
91c77044a50c481636c32d916fd89c9118a72195390452c81065080f957de7ff  hbase/javax.inject-1.jar
af456b2dd41c4e82cf54f3e743bc678973d9fe35bd4d3071fa05c7e5333b8482  hbase/javax.servlet-api-3.1.0.jar
b1306f5cc721e25e290d2b244af7bfb870a7e072bd32f17350712d1626a74f4b  hbase/javax.servlet.jsp-api-2.3.1.jar
88b955a0df57880a26a74708bc34f74dcaf8ebf4e78843a28b50eae945732b06  hbase/jaxb-api-2.3.1.jar
fa3e1499b192c310312bf02881274b68394aaea4c9563e6c554cc406ae644ff8  hbase/jaxb-impl-2.2.3-1.jar
4fccff8382aafc589962c4edb262f6aa595e34f1e11e61057d1c6a96e8fc7323  hbase/jcip-annotations-1.0-1.jar
e2f85def67d6848a7a41c648248645689e3990d17ab8f253ab2fd7e69407df67  hbase/jcodings-1.0.58.jar
639c825c5db580f8115bf49ffc893093526d2ed1079fbc929b6a5fbd0b2eda40  hbase/jersey-client-1.19.4.jar
64b03198e0264849d0fc341857ebcc9c882b1909a2dc35a0972fe7d901b826e5  hbase/jersey-core-1.19.4.jar
8653320f79f20a369bfb9e6ff84be9315843bc4a048b37e1df13c777c7cfcb33  hbase/jersey-guice-1.19.4.jar
2a7161550b5632b5c8f86bb13b15a03ae07ff27c92d9d089d9bf264173706702  hbase/jersey-json-1.22.0.jar
afc0f6cd21d4742d312cb511a8fa2a253213285f5425dda005708fd5928504e6  hbase/jersey-server-1.19.4.jar
08c80d4e83ad8d20dcfbc633235bfa68f8519ceddb8ad2d6d112e95f43288e90  hbase/jersey-servlet-1.19.4.jar
fc3a68a7c17688ee50817340fef265d8d3f6c192c92bbee00d17f18a6d3dfeda  hbase/jettison-1.5.4.jar
acacb4b9b4cc1bf5f6fc0e3369a87d74ad12c69f3a04b8781773bab8ede7af73  hbase/jetty-client-9.4.57.v20241219.jar
02c6514977f0051dfdecf8d0799acf7a88fd8008a5fd9320a92f2e5db45d297b  hbase/jetty-http-9.4.57.v20241219.jar
f6246a2cf0abcee7f0971217c0ce4cd30d8ce15a91530363457113907ab38690  hbase/jetty-io-9.4.57.v20241219.jar
af923d4f395a73bf8ddcb754f42d7617c6b7055e37e5a6b625ed894f73107ae9  hbase/jetty-security-9.4.57.v20241219.jar
ba957ae07da647023cfa52c923732aea1c67f5273a594cee1863365dfebb9a02  hbase/jetty-server-9.4.57.v20241219.jar
c5e9517974dec9e4606b2d810f4995ea81091b1e24bd9640cb45d8b2aefd722c  hbase/jetty-servlet-9.4.57.v20241219.jar
6ccbf678716778e316cc097d8aada4fe2a2e16c0bbfd8a1763204d6724b423f4  hbase/jetty-util-9.4.57.v20241219.jar
67af50dd7714803b1bcdfabac181dd8b279d0ba6ba7fd27ea80c5b2099016542  hbase/jetty-util-ajax-9.4.57.v20241219.jar
f2cef977201142d18ad40986b388623e4ca22b89f38b7208a36a6453f993e37c  hbase/jetty-webapp-9.4.57.v20241219.jar
531320243d5ab3a90c1e0d254d1267b3ec1af6531b8b0a3cce4c21ddb2366f33  hbase/jetty-xml-9.4.57.v20241219.jar
d2b986fd15d05e0b900faba776c1de9b4dc4a4fcdfeaa12a8ab8fb2b290ed527  hbase/jline-3.9.0.jar
b3e4b657a3ed1d8f684114f6baa462d553a5932a865c1574695498dda8577748  hbase/joni-2.2.1.jar
d492b15a6d2ea3f1cc39c422c953c40c12289073dbe8360d98c0f6f9ec74fc44  hbase/jsch-0.1.55.jar
89247dda5c0e61e8c658ed36109ca6ec662ebae9fa2c40d937466035d023419b  hbase/kerb-core-2.0.3.jar
9e368bdc1e8a22e87c775e42d0a15599bdd9e16954f55a964f42ff1d9f94adb2  hbase/kerb-crypto-2.0.3.jar
59da956d1c65f5ddfe43606ccfcccd1a4508936fb726d01b2f3753b292b97b34  hbase/kerb-util-2.0.3.jar
3f1532d2bfa0dd6fec171744a07990c0046e0f2f0f65ca21780b408a3827dbd2  hbase/kerby-asn1-2.0.3.jar
5137cab8fd70ce322f92a6ab7678f63d2660dab2c14d339dabae9f8e14067d06  hbase/kerby-config-2.0.3.jar
aec2d810b0ad3ff939bd4c70ebfce96539642c20f52cb3fbe4852dc827fec2c9  hbase/kerby-pkix-2.0.3.jar
65afc7a01a6d43b7db9e0a6768a750607fd318656da10a7f654414a5ccf5dc8a  hbase/kerby-util-2.0.3.jar
b372a037d4230aa57fbeffdef30fd6123f9c0c2db85d0aced00c91b974f33f99  hbase/listenablefuture-9999.0-empty-to-avoid-conflict-with-guava.jar
891174c5230476e1950a286169672002978562ebdf5c85f0199ecae1bd030f9f  hbase/metrics-core-3.2.6.jar
44790974f057722b9d9d19dcb7afb91504eeb46d81fa2494db4f0fe01c5b7242  hbase/netty-all-4.1.118.Final.jar
0eea4e8666a9636a28722661d8ba5fa8564477e75fec6dd2ff3e324e361f8b3c  hbase/netty-buffer-4.1.118.Final.jar
4abd215fd1ed7ce86509d169cc9cbede5042176c265a79b3b70602b017226c3f  hbase/netty-codec-4.1.118.Final.jar
e115e42ca1e3cc8d85e3a632d8faa102d18c0ebc1fa4511af30bec79f8c147d4  hbase/netty-codec-dns-4.1.118.Final.jar
442adc9857f129389cb7fc43c8d602dfb60305c75f14338d60e9f24646b307fe  hbase/netty-codec-haproxy-4.1.118.Final.jar
09822d785e9a794838031ddd5346cf419b30c036a981c2e277a062bea884174b  hbase/netty-codec-http-4.1.118.Final.jar
68da0b1a34dceb00a6f9f6f788fb2f6b7b9e4adba8c70658ac2bd7eb898b97ae  hbase/netty-codec-http2-4.1.118.Final.jar
e808b9fb1e0c165517782fa7efa97b25b69eb29029f8c39cd934c4a740aaf4c6  hbase/netty-codec-memcache-4.1.118.Final.jar
11055eaff1fca2a4df3f97b8a5a86732366ca99ff823ceef1c1a4bc4ddcb3b20  hbase/netty-codec-mqtt-4.1.118.Final.jar
1a516f6c038976cfd8132d10ff01075d184eb94b168f95db36b7aef283fc2337  hbase/netty-codec-redis-4.1.118.Final.jar
ea97d0622440bcdf20278252d8c276430e17749204e169cd3ee60199e6d3ba3c  hbase/netty-codec-smtp-4.1.118.Final.jar
094465e3cfb3aef0fca38ed82b801f53a6c8be7ae1f83ab0c1b2e8ece2586840  hbase/netty-codec-socks-4.1.118.Final.jar
a9a6c2ed43cc1f0769f9e130f9df5c76be9fd9294e4611227341d8b28689ec57  hbase/netty-codec-stomp-4.1.118.Final.jar
47ac0297e67213a4dd24ef4e81f170a87787df92ac6f2a2a9da051f272a5a482  hbase/netty-codec-xml-4.1.118.Final.jar
65cce901ecf0f9d6591cc7750772614ab401a84415dc9aec9da4d046f0f9a77c  hbase/netty-common-4.1.118.Final.jar
26e3f8a5e859fd62cf3c13dc6d75e4e18879f000a5d0ad7f58f8679675d23dae  hbase/netty-handler-4.1.118.Final.jar
fef926126f44c668968dd3e2389c2552981d452e6dfc23b1f9bd03db92c21f96  hbase/netty-handler-proxy-4.1.118.Final.jar
c311f4f3389432544bf103162b40736d9b67001dbae1cb92d67adcb56f50f1c6  hbase/netty-handler-ssl-ocsp-4.1.118.Final.jar
3170c225972c18b6850d28add60db15bb28d83c4e3d5b686ca220e0bd7273c8a  hbase/netty-resolver-4.1.118.Final.jar
c0e0fdaffaba849e3145b2b96288fc8fc6f3b2a623cf72aaba708288348e4938  hbase/netty-resolver-dns-4.1.118.Final.jar
fb51c17c4eaba431da57dcf185d9a02c767dbc2925f281e19a4f14ba1b0ae5ed  hbase/netty-resolver-dns-classes-macos-4.1.118.Final.jar
e1e95fe184946a0e14171c494e54456b9160f9f9f2a07e5db30426ed9f9b76d8  hbase/netty-resolver-dns-native-macos-4.1.118.Final-osx-aarch_64.jar
0bb6cd68b24b844eae224a1846909adbdffa7f78407bb588bf77f01f334b5bb5  hbase/netty-resolver-dns-native-macos-4.1.118.Final-osx-x86_64.jar
ab3751e717daef9c8d91e4d74728a48730bd8530b72e2466b222b2ea3fb07db9  hbase/netty-transport-4.1.118.Final.jar
bd86e6d41e1f6053f9577931655236259778ab045646e1e6ab04150f070864f3  hbase/netty-transport-classes-epoll-4.1.118.Final.jar
9ac68d26efb78d74a24eeec8309d60bc80265655b60c44920dcac0828db4e8e2  hbase/netty-transport-classes-kqueue-4.1.118.Final.jar
53b3bec1d019bd3db6eeed30c6a770b49052ddd8fa1566796ae759e62b572425  hbase/netty-transport-native-epoll-4.1.118.Final-linux-aarch_64.jar
e7b7a5403a580be2f38c99c2559e551ebb563fdddd89d7f6e142fb1b475ba95d  hbase/netty-transport-native-epoll-4.1.118.Final-linux-riscv64.jar
c95f66b9ab3f7fb6e666a81a5d0120e0c6acddf8fdf440e2ba212bfaf76a7c73  hbase/netty-transport-native-epoll-4.1.118.Final-linux-x86_64.jar
599f32b702fb515f6fe15064250f525ad7eee13676dd3bcfc4c42704a17c7c7e  hbase/netty-transport-native-kqueue-4.1.118.Final-osx-aarch_64.jar
dc0a100920afadd39c252ba682ea62bfdb139945eaa9efdb6472f20b6bae4ef2  hbase/netty-transport-native-kqueue-4.1.118.Final-osx-x86_64.jar
69b16793d7b41ea76a762bd2bd144fc4f7c39c156a7a59ebf69baeb560fb10b7  hbase/netty-transport-native-unix-common-4.1.118.Final.jar
e5cdde9a3b70ea9cca796872c86598bff60883332151794b3900d533e1316739  hbase/netty-transport-rxtx-4.1.118.Final.jar
1f9f992bb1681637932dbd0449dc931088ea8bb25f968c07524ef0f193ea6c52  hbase/netty-transport-sctp-4.1.118.Final.jar
f8ca98ebc019f4fed190c959abfd8d32996250c1a4f97f4fd88c99ab97759d1b  hbase/netty-transport-udt-4.1.118.Final.jar
73bca52833f7ad9571f9c054964007e54f0abcc60e0703a003d1cfa2080336bb  hbase/nimbus-jose-jwt-9.37.2.jar
a813c9a92b82a4ffa3a62e88216a9e9ef9a407fcd41614fe596b2895167ed638  hbase/opentelemetry-api-1.49.0.jar
17de3c85b341240b3b216c43adbd244c9fbd39c9e5448306d56460f80599a76b  hbase/opentelemetry-context-1.49.0.jar
a95f1aed7e3f64353ec625c6def72a0caaf06b6c53970f578fdd513dafd995fd  hbase/opentelemetry-semconv-1.29.0-alpha.jar
e0c1c64575c005601725e7c6a02cebf9e1285e888f756b2a1d73ffa8d725cc74  hbase/protobuf-java-2.5.0.jar
24ada84d1b5de584e3e84b06f0c7dd562cee6eafe8dea8083bd8eb123823bbe7  hbase/re2j-1.1.jar
222f90d3e69541218ef6e70547749d693bd4c1846817e5bd7949b3e28950f99f  hbase/reload4j-1.2.22.jar
336811855ee97fcd8413343dc42f4d26362502860e8a9193e4db305e3e8ef80a  hbase/slf4j-api-1.7.33.jar
ae6fdd5c9547896114d5ec7fa7503733b7d2890573d3886fb548b3119c4d3f67  hbase/slf4j-reload4j-1.7.36.jar
55b30c94e5c4cc2d4b6976916098d0678a8a6cc7427fa8c875621bd94e731ac8  hbase/snappy-java-1.1.10.4.jar
678567e48b51a42c65c699f266539ad3d676d4b1a5b0ad7d89ece8b9d5772579  hbase/stax2-api-4.2.1.jar
d8ebc95607426fcf358bb23b476a731bc244f843bc55f5ca00b6110aef1a2ebd  hbase/tomcat-api-9.0.110.jar
fe5578507b9dcf7eb4ce3aa5cd6c2972fa7a7c59f4ae51d623b242f1aa459179  hbase/tomcat-el-api-9.0.110.jar
017e55b39c19893e81fc0cd2a6101092602d604ca0d7a49c83f6efbdafcbdc18  hbase/tomcat-jasper-9.0.110.jar
ae824e3244126fdeb7839ad94fdcfb56d7913aaabe50217752b5a201c38cc1d9  hbase/tomcat-jasper-el-9.0.110.jar
73ae1c794829a4e0b4af5c49946d9bb1cff74a3e0649ae282e102becb35198ad  hbase/tomcat-juli-9.0.110.jar
cc74a8013d862efb0456e28a5221cb37cb80c872327432ca7177a8e9b74c829e  hbase/tomcat-util-9.0.110.jar
635e1ccc246daaf6cc57cc324ee8066f400285b83a259c9778bbc736bb2072f9  hbase/tomcat-util-scan-9.0.110.jar
5933b3678c9b59552bab900d521deade8bb24c441d3f35db957a87210a478c2d  hbase/websocket-api-9.4.57.v20241219.jar
994a6ce882440d3ce41adae46f60c14ea692faa884fd8e44247f6a955cdeb4fe  hbase/websocket-client-9.4.57.v20241219.jar
100cafab74235b3e4a1d9fbb1504bbd51ad2da9a2670c18adc28949a6dc8e61d  hbase/websocket-common-9.4.57.v20241219.jar
dbb958cb89f1d45238b061e146249494ff887f5f42b671a3956e98956e0d5c53  hbase/woodstox-core-5.4.0.jar
2d77b152039e7f85dc5438a9304febff86a2f3e55c88976a8be309af39028e97  hbase/zookeeper-3.8.4.jar
93e854b55d731e745bafec187e2e7bf3389fd2a88e2fc8d1a3c1b9110284b284  hbase/zookeeper-jute-3.8.4.jar
"""  # noqa: E501


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

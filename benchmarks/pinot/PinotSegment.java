// Writes JSON lines into a Pinot segment, and prints the bytes of the segment's folder.
//
//     java -cp 'JARS/*' PinotSegment.java ROWS.json OUT_FOLDER SCHEMA.json TABLE.json
//
// SCHEMA and TABLE are Pinot's own configurations. The segment is what Pinot's batch jobs and its servers write.

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.File;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.pinot.segment.local.segment.creator.impl.SegmentIndexCreationDriverImpl;
import org.apache.pinot.segment.local.segment.readers.GenericRowRecordReader;
import org.apache.pinot.segment.spi.creator.SegmentGeneratorConfig;
import org.apache.pinot.spi.config.table.TableConfig;
import org.apache.pinot.spi.data.Schema;
import org.apache.pinot.spi.data.readers.GenericRow;
import org.apache.pinot.spi.utils.JsonUtils;

public final class PinotSegment {
  public static void main(String[] arguments) throws Exception {
    ObjectMapper mapper = new ObjectMapper();
    List<GenericRow> rows = new ArrayList<>();
    try (BufferedReader lines = Files.newBufferedReader(Path.of(arguments[0]), StandardCharsets.UTF_8)) {
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        GenericRow row = new GenericRow();
        Map<?, ?> values = mapper.readValue(line, Map.class);
        values.forEach((name, value) -> row.putValue((String) name, value));
        rows.add(row);
      }
    }
    Schema schema = Schema.fromFile(new File(arguments[2]));
    TableConfig table = JsonUtils.fileToObject(new File(arguments[3]), TableConfig.class);
    SegmentGeneratorConfig config = new SegmentGeneratorConfig(table, schema);
    config.setOutDir(arguments[1]);
    config.setSegmentName("rows");
    SegmentIndexCreationDriverImpl driver = new SegmentIndexCreationDriverImpl();
    driver.init(config, new GenericRowRecordReader(rows));
    driver.build();
    try (Stream<Path> files = Files.walk(Path.of(arguments[1], "rows"))) {
      System.out.println(files.filter(Files::isRegularFile).mapToLong(file -> file.toFile().length()).sum());
    }
  }
}

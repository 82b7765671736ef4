import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.Date;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.UUID;

/** Sealed columns through JDBC: server-prepared statements, batches, getters, metadata. */
public class JdbcTest {
    static void check(boolean good, String what) {
        if (!good) {
            throw new AssertionError(what);
        }
    }

    public static void main(String[] args) throws SQLException {
        UUID number = UUID.fromString("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11");
        try (Connection conn = DriverManager.getConnection(args[0])) {
            try (PreparedStatement insert = conn.prepareStatement(
                    "INSERT INTO card (id, code, holder, number, balance, born, raw, note) VALUES (?, ?, ?, ?, ?, ?, ?, ?)")) {
                for (long i = 1; i <= 100; i++) {
                    insert.setLong(1, i);
                    insert.setInt(2, (int) i % 10);
                    insert.setString(3, "holder " + i);
                    insert.setObject(4, number);
                    insert.setBigDecimal(5, new BigDecimal("10.50").multiply(BigDecimal.valueOf(i)));
                    insert.setObject(6, java.time.LocalDate.of(1990, 1, 1).plusDays(i));
                    insert.setBytes(7, new byte[] {0, (byte) i});
                    insert.setString(8, "note " + i);
                    insert.addBatch();
                }
                insert.executeBatch();
            }
            try (PreparedStatement select = conn.prepareStatement(
                    "SELECT id, holder, balance, born, raw::bytea, note, code FROM card WHERE id = ?")) {
                for (int round = 0; round < 8; round++) {
                    select.setLong(1, 42);
                    try (ResultSet row = select.executeQuery()) {
                        check(row.next(), "no row");
                        check(row.getLong("id") == 42, "id");
                        check(row.getString("holder").equals("holder 42"), "holder");
                        check(row.getBigDecimal("balance").equals(new BigDecimal("441.00")), "balance " + row.getString("balance"));
                        check(row.getDate("born").equals(Date.valueOf("1990-02-12")), "born " + row.getString("born"));
                        check(row.getBytes("raw")[1] == 42, "raw");
                        check(row.getString("note").equals("note 42"), "note");
                        check(row.getInt("code") == 2, "code");
                        check(row.getMetaData().getColumnTypeName(1).equals("sealed_int8"), "type name");
                    }
                }
            }
            try (PreparedStatement count = conn.prepareStatement(
                    "SELECT count(*) FROM card WHERE holder = ? AND code = ? AND balance < ? AND born < ?")) {
                count.setString(1, "holder 7");
                count.setLong(2, 7);
                count.setBigDecimal(3, new BigDecimal("1000"));
                count.setObject(4, java.time.LocalDate.of(2000, 1, 1));
                try (ResultSet row = count.executeQuery()) {
                    row.next();
                    check(row.getInt(1) == 1, "count " + row.getInt(1));
                }
            }
        }
        System.out.println("JDBC passed");
    }
}

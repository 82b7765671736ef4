import java.sql.*;
import java.util.Arrays;

/** With pgseal.base_types, JDBC sees plain columns: their types, their bytes, their metadata. */
public class BaseTypesTest {
    static void same(Object got, Object wanted) {
        if (!wanted.equals(got)) throw new AssertionError("'" + got + "' is not '" + wanted + "'");
    }

    public static void main(String[] args) throws Exception {
        byte[] bytes = {1, 2, (byte) 255};
        try (Connection c = DriverManager.getConnection(args[0] + "&options=-c%20pgseal.base_types=on")) {
            try (PreparedStatement p = c.prepareStatement("INSERT INTO card (id, balance, raw, number) VALUES (?, ?, ?, ?)")) {
                same(p.getParameterMetaData().getParameterTypeName(1), "int8");
                p.setLong(1, 77);
                p.setBigDecimal(2, new java.math.BigDecimal("1.50"));
                p.setBytes(3, bytes);
                p.setObject(4, java.util.UUID.fromString("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"));
                p.executeUpdate();
            }
            try (PreparedStatement p = c.prepareStatement("SELECT id, balance, raw, number FROM card WHERE id = ?")) {
                for (int i = 0; i < 7; i++) {
                    p.setLong(1, 77);
                    try (ResultSet r = p.executeQuery()) {
                        same(r.next(), true);
                        same(r.getMetaData().getColumnTypeName(3), "bytea");
                        same(r.getObject(1), 77L);
                        same(r.getObject(2), new java.math.BigDecimal("1.50"));
                        same(Arrays.equals(r.getBytes(3), bytes), true);
                        same(r.getObject(4), java.util.UUID.fromString("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"));
                    }
                }
            }
        }
        // Without it: the text of the bytes, not the bytes. docs/columns.md says so.
        try (Connection c = DriverManager.getConnection(args[0]);
                ResultSet r = c.createStatement().executeQuery("SELECT raw FROM card WHERE id = 77")) {
            same(r.next(), true);
            same(new String(r.getBytes(1)), "\\x0102ff");
        }
        System.out.println("JDBC with base types passed");
    }
}

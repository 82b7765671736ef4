// Sealed columns through pgx, which asks the server for the types of parameters and results.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	ctx := context.Background()
	config, err := pgx.ParseConfig(os.Args[1])
	check(err)
	config.RuntimeParams["pgseal.base_types"] = "on"
	conn, err := pgx.ConnectConfig(ctx, config)
	check(err)
	at := time.Date(2024, 2, 29, 12, 0, 0, 0, time.UTC)
	_, err = conn.Exec(ctx, "INSERT INTO card (id, code, holder, at, raw) VALUES ($1, $2, $3, $4, $5)",
		int64(88), int32(-5), "Ada Lovelace", at, []byte{0, 255})
	check(err)
	var id int64
	var code int32
	var holder string
	var seen time.Time
	var raw []byte
	row := conn.QueryRow(ctx, "SELECT id, code, holder, at, raw FROM card WHERE id = $1 ORDER BY id", int64(88))
	check(row.Scan(&id, &code, &holder, &seen, &raw))
	if id != 88 || code != -5 || holder != "Ada Lovelace" || !seen.Equal(at) || !bytes.Equal(raw, []byte{0, 255}) {
		check(fmt.Errorf("read %v %v %v %v %v", id, code, holder, seen, raw))
	}
	fmt.Println("pgx passed")
}

// One statement through go-sql-driver/mysql, as its users ask it: what it says is one JSON object on stdout.
//
//	go_client DSN WAY TIMEOUT_MS SQL [VALUE ...]
//
// WAY is "query" or "prepared" (asked twice). VALUE is "null", "text:…", "int:…", "float:…" or "time:…".
// The answer has "columns", "types" (the database's names), "rows" (lists, each value as [Go's type, text]),
// or "error" and, of an error of the server, its "number".
package main

import (
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

type answer struct {
	Columns   []string     `json:"columns"`
	Types     []string     `json:"types"`
	Rows      [][][]string `json:"rows"`
	Error     string       `json:"error,omitempty"`
	Number    uint16       `json:"number,omitempty"`
	IsOver    bool         `json:"is_over,omitempty"`
	GoesOn    bool         `json:"goes_on"`
	ElapsedMs int64        `json:"elapsed_ms"`
}

func main() {
	said, err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5:])
	if err != nil {
		said.Error = err.Error()
		var ofServer *mysql.MySQLError
		if errors.As(err, &ofServer) {
			said.Number = ofServer.Number
		}
		said.IsOver = errors.Is(err, context.DeadlineExceeded)
	}
	if err := json.NewEncoder(os.Stdout).Encode(said); err != nil {
		panic(err)
	}
}

func run(dsn, way, timeoutMs, text string, given []string) (said answer, err error) {
	milliseconds, err := strconv.Atoi(timeoutMs)
	if err != nil {
		return said, err
	}
	values, err := parsed(given)
	if err != nil {
		return said, err
	}
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return said, err
	}
	defer db.Close()
	if err = db.Ping(); err != nil {
		return said, err
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(milliseconds)*time.Millisecond)
	defer cancel()
	err = asked(ctx, db, way, text, values, &said)
	said.ElapsedMs = time.Since(began).Milliseconds()
	var one int
	said.GoesOn = db.QueryRow("select 1").Scan(&one) == nil && one == 1
	return said, err
}

func asked(ctx context.Context, db *sql.DB, way, text string, values []any, said *answer) error {
	if way == "query" {
		rows, err := db.QueryContext(ctx, text, values...)
		return read(rows, err, said)
	}
	statement, err := db.PrepareContext(ctx, text)
	if err != nil {
		return err
	}
	defer statement.Close()
	for range []int{1, 2} {
		*said = answer{}
		rows, err := statement.QueryContext(ctx, values...)
		if err := read(rows, err, said); err != nil {
			return err
		}
	}
	return nil
}

func read(rows *sql.Rows, err error, said *answer) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	kinds, err := rows.ColumnTypes()
	if err != nil {
		return err
	}
	for _, kind := range kinds {
		said.Columns = append(said.Columns, kind.Name())
		said.Types = append(said.Types, kind.DatabaseTypeName())
	}
	for rows.Next() {
		found := make([]any, len(kinds))
		targets := make([]any, len(kinds))
		for position := range found {
			targets[position] = &found[position]
		}
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		row := [][]string{}
		for _, value := range found {
			row = append(row, shown(value))
		}
		said.Rows = append(said.Rows, row)
	}
	return rows.Err()
}

func shown(value any) []string {
	switch known := value.(type) {
	case []byte:
		return []string{"[]uint8", string(known)}
	case time.Time:
		return []string{"time.Time", known.Format(time.RFC3339Nano)}
	default:
		return []string{fmt.Sprintf("%T", value), fmt.Sprint(value)}
	}
}

func parsed(given []string) (values []any, err error) {
	for _, text := range given {
		kind, rest, _ := strings.Cut(text, ":")
		var value any
		switch kind {
		case "null":
		case "text":
			value = rest
		case "bytes":
			value, err = hex.DecodeString(rest)
		case "int":
			value, err = strconv.ParseInt(rest, 10, 64)
		case "float":
			value, err = strconv.ParseFloat(rest, 64)
		case "time":
			value, err = time.Parse(time.RFC3339Nano, rest)
		default:
			err = fmt.Errorf("a value of no kind: %s", text)
		}
		if err != nil {
			return nil, err
		}
		values = append(values, value)
	}
	return values, nil
}

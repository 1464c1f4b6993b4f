package rockmill

import (
	"fmt"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/linxGnu/grocksdb"
)

const settings = "min_job_bytes=0"

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestADatabaseIsCompactedAndReadsTheSame(t *testing.T) {
	opts := grocksdb.NewDefaultOptions()
	defer opts.Destroy()
	opts.SetCreateIfMissing(true)
	release, err := Attach(opts, settings)
	check(t, err)
	path := t.TempDir()
	db, err := grocksdb.OpenDb(opts, path)
	check(t, err)
	write, read, flush := grocksdb.NewDefaultWriteOptions(), grocksdb.NewDefaultReadOptions(), grocksdb.NewDefaultFlushOptions()
	for file := 0; file < 4; file++ {
		for key := 0; key < 1000; key++ {
			check(t, db.Put(write, []byte(fmt.Sprint("key", key*(file+1))), []byte(fmt.Sprint(file))))
		}
		check(t, db.Flush(flush))
	}
	db.CompactRange(grocksdb.Range{})
	stats, err := Stats(settings)
	check(t, err)
	if strings.Contains(stats, `"jobs_done":0,`) {
		t.Fatal("nothing was done: ", stats)
	}
	release()
	for key := 0; key < 4000; key++ {
		expected := ""
		for file := 0; file < 4; file++ {
			if key%(file+1) == 0 && key/(file+1) < 1000 {
				expected = fmt.Sprint(file)
			}
		}
		value, err := db.Get(read, []byte(fmt.Sprint("key", key)))
		check(t, err)
		if string(value.Data()) != expected {
			t.Fatal("key", key, " is ", string(value.Data()), " and not ", expected)
		}
		value.Free()
	}
	db.Close()
	release()
}

func TestOtherVersionsOfGrocksdbAreRefused(t *testing.T) {
	dep := func(version string) *debug.BuildInfo {
		return &debug.BuildInfo{Deps: []*debug.Module{{Path: "github.com/linxGnu/grocksdb", Version: version}}}
	}
	check(t, checkVersion(dep("v1.11.1")))
	check(t, checkVersion(&debug.BuildInfo{}))
	if err := checkVersion(dep("v1.12.0")); err == nil || !strings.Contains(err.Error(), "v1.12.0") {
		t.Fatal(err)
	}
}

func TestSettingsThatAreNotPossibleAreRefused(t *testing.T) {
	opts := grocksdb.NewDefaultOptions()
	defer opts.Destroy()
	if _, err := Attach(opts, "threads=many"); err == nil || !strings.Contains(err.Error(), "threads") {
		t.Fatal(err)
	}
	if _, err := Attach(nil, settings); err == nil {
		t.Fatal("nil is no options")
	}
}

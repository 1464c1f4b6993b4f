// Package rockmill lets Rockmill do the compactions of databases that are opened with grocksdb.
//
//	release, err := rockmill.Attach(opts, "device=auto")
//	if err != nil { .. }
//	defer release()
//	db, err := grocksdb.OpenDb(opts, path)
//
// It needs grocksdb 1.11 with RocksDB 10.10 or newer. A program that links RocksDB statically has to export its functions:
// go build -ldflags '-extldflags -rdynamic'.
package rockmill

// #cgo LDFLAGS: -lrockmill_attach -lrockmill
// #include <stdlib.h>
// #include <rockmill/attach.h>
import "C"

import (
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"strings"
	"sync"
	"unsafe"

	"github.com/linxGnu/grocksdb"
)

// The type of the first field of grocksdb.Options, as cgo names it.
const optionsType = "_Ctype_struct_rocksdb_options_t"

type service struct {
	handle *C.rm_service
	users  int
}

var (
	mutex    sync.Mutex
	services = map[string]*service{}
)

// Attach lets the service of these settings do the compactions of databases that are opened with opts. An example of
// settings is "device=auto;threads=8". Call it before a database is opened, once for each database's own options. Calls
// with the same settings share one service. Do not attach options with SetDBPaths on other file systems: RocksDB could not
// move files there, and would stop writes.
//
// release may be called at any time, also while databases are open, because they keep the service. After an error the
// options are unchanged.
func Attach(opts *grocksdb.Options, settings string) (release func(), err error) {
	native, err := nativeOptions(opts)
	if err != nil {
		return nil, err
	}
	mutex.Lock()
	defer mutex.Unlock()
	shared, err := shared(settings)
	if err != nil {
		return nil, err
	}
	var text *C.char
	if C.rm_attach_service(native, shared.handle, nil, &text) != C.RM_SUCCESS {
		leave(settings, shared)
		return nil, taken(text)
	}
	var once sync.Once
	return func() {
		once.Do(func() {
			mutex.Lock()
			defer mutex.Unlock()
			leave(settings, shared)
		})
	}, nil
}

// Stats returns the work done so far by the service of these settings, as JSON.
func Stats(settings string) (string, error) {
	mutex.Lock()
	defer mutex.Unlock()
	shared, ok := services[settings]
	if !ok {
		return "", fmt.Errorf("rockmill: nothing is attached with the settings %q", settings)
	}
	var text *C.char
	json := C.rm_service_stats_json(shared.handle, &text)
	if json == nil {
		return "", taken(text)
	}
	defer C.rm_free(unsafe.Pointer(json))
	return C.GoString(json), nil
}

// checkVersion refuses versions of grocksdb whose Options may be laid out otherwise. Programs that were built without modules
// have no version, and then the type of the field has to suffice.
func checkVersion(info *debug.BuildInfo) error {
	for _, module := range info.Deps {
		if module.Path != "github.com/linxGnu/grocksdb" {
			continue
		}
		if module.Replace != nil {
			module = module.Replace
		}
		if module.Version != "" && !strings.HasPrefix(module.Version, "v1.11.") {
			return fmt.Errorf("rockmill: grocksdb is %s; version 1.11 is known", module.Version)
		}
	}
	return nil
}

// nativeOptions returns the rocksdb_options_t of opts, which grocksdb does not export.
func nativeOptions(opts *grocksdb.Options) (unsafe.Pointer, error) {
	if opts == nil {
		return nil, errors.New("rockmill: the options are nil")
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		if err := checkVersion(info); err != nil {
			return nil, err
		}
	}
	field := reflect.TypeOf(*opts).Field(0)
	if field.Type.Kind() != reflect.Ptr || field.Type.Elem().Name() != optionsType {
		return nil, fmt.Errorf("rockmill: this grocksdb keeps options as %v; version 1.11 is known", field.Type)
	}
	native := *(*unsafe.Pointer)(unsafe.Pointer(opts))
	if native == nil {
		return nil, errors.New("rockmill: the options are destroyed")
	}
	return native, nil
}

// shared returns the service of the settings with one more user.
func shared(settings string) (*service, error) {
	known, ok := services[settings]
	if !ok {
		given := C.CString(settings)
		defer C.free(unsafe.Pointer(given))
		var text *C.char
		handle := C.rm_service_open(given, &text)
		if handle == nil {
			return nil, taken(text)
		}
		known = &service{handle: handle}
		services[settings] = known
	}
	known.users++
	return known, nil
}

// leave removes a user of a service, and closes it with the last one.
func leave(settings string, of *service) {
	of.users--
	if of.users == 0 {
		C.rm_service_close(of.handle, nil)
		delete(services, settings)
	}
}

// taken returns an error with a text of the library, and frees the text.
func taken(text *C.char) error {
	defer C.rm_free(unsafe.Pointer(text))
	return errors.New("rockmill: " + C.GoString(text))
}

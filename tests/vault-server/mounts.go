package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	kv "github.com/hashicorp/vault-plugin-secrets-kv"
	"github.com/hashicorp/vault/builtin/credential/approle"
	"github.com/hashicorp/vault/builtin/credential/cert"
	"github.com/hashicorp/vault/builtin/logical/transit"
	"github.com/hashicorp/vault/sdk/logical"
)

// mount is an engine or a login method at a path that ends with a slash.
type mount struct {
	kind    string
	storage fileStorage
	backend logical.Backend // nil for the login method Kubernetes, which is ours
	jwts    map[string]jwtRole
}

// jwtRole is what a role of the login method Kubernetes takes.
type jwtRole struct{ jwt, policies string }

var factories = map[string]logical.Factory{
	"transit": transit.Factory,
	"kv":      kv.Factory,
	"approle": approle.Factory,
	"cert":    cert.Factory,
}

// open makes the backend of a kind over the storage of its path.
func open(dir, path, kind string) (*mount, error) {
	storage := fileStorage{filepath.Join(dir, hex.EncodeToString([]byte(path))), new(sync.RWMutex)}
	if err := os.MkdirAll(storage.dir, 0o700); err != nil {
		return nil, err
	}
	m := &mount{kind: kind, storage: storage, jwts: map[string]jwtRole{}}
	if kind == "kubernetes" {
		return m, nil
	}
	factory, found := factories[kind]
	if !found {
		return nil, fmt.Errorf("plugin not found in the catalog: %s", kind)
	}
	ctx := context.Background()
	backend, err := factory(ctx, &logical.BackendConfig{
		StorageView: storage,
		System: logical.StaticSystemView{
			DefaultLeaseTTLVal: time.Hour,
			MaxLeaseTTLVal:     24 * time.Hour,
		},
		Config:      map[string]string{"version": "2"},
		BackendUUID: "0f0c0f1e-5b1f-4d8a-9b3c-6f5d2a1e7c44",
	})
	if err != nil {
		return nil, err
	}
	if err := backend.Initialize(ctx, &logical.InitializationRequest{Storage: storage}); err != nil {
		return nil, err
	}
	m.backend = backend
	return m, nil
}

// mounts are remembered in a file of the directory.
func (s *server) mountsFile() string { return filepath.Join(s.dir, "mounts.json") }

func (s *server) loadMounts() {
	text, err := os.ReadFile(s.mountsFile())
	if err != nil {
		return
	}
	kinds := map[string]string{}
	check(json.Unmarshal(text, &kinds))
	for path, kind := range kinds {
		m, err := open(s.dir, path, kind)
		check(err)
		s.mounts[path] = m
	}
}

func (s *server) addMount(path, kind string) error {
	path = strings.Trim(path, "/") + "/"
	if s.mounts[path] != nil {
		return fmt.Errorf("path is already in use at %s", path)
	}
	m, err := open(s.dir, path, kind)
	if err != nil {
		return err
	}
	s.mounts[path] = m
	kinds := map[string]string{}
	for path, m := range s.mounts {
		kinds[path] = m.kind
	}
	text, err := json.Marshal(kinds)
	if err != nil {
		return err
	}
	return os.WriteFile(s.mountsFile(), text, 0o600)
}

// route finds the mount of a path, and the path in it.
func (s *server) route(path string) (*mount, string, string) {
	best := ""
	for at := range s.mounts {
		if strings.HasPrefix(path, at) && len(at) > len(best) {
			best = at
		}
	}
	if best == "" {
		return nil, "", ""
	}
	return s.mounts[best], best, path[len(best):]
}

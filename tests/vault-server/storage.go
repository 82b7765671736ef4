package main

import (
	"context"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/hashicorp/vault/sdk/logical"
)

// fileStorage keeps each entry in a file, so that keys outlive the server. It encrypts nothing. The
// key a/b is the file "fb" in the directory "da".
type fileStorage struct {
	dir  string
	lock *sync.RWMutex
}

// parent is the directory of what begins with a prefix that is empty or ends with a slash.
func (s fileStorage) parent(prefix string) string {
	path := s.dir
	for _, name := range strings.Split(strings.TrimSuffix(prefix, "/"), "/") {
		if name != "" {
			path = filepath.Join(path, "d"+url.PathEscape(name))
		}
	}
	return path
}

func (s fileStorage) file(key string) string {
	slash := strings.LastIndex(key, "/") + 1
	return filepath.Join(s.parent(key[:slash]), "f"+url.PathEscape(key[slash:]))
}

func (s fileStorage) List(_ context.Context, prefix string) ([]string, error) {
	s.lock.RLock()
	defer s.lock.RUnlock()
	files, err := os.ReadDir(s.parent(prefix))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	names := []string{}
	for _, file := range files {
		name, err := url.PathUnescape(file.Name()[1:])
		if err != nil {
			return nil, err
		}
		if file.IsDir() {
			name += "/"
		}
		names = append(names, name)
	}
	return names, err
}

func (s fileStorage) Get(_ context.Context, key string) (*logical.StorageEntry, error) {
	s.lock.RLock()
	defer s.lock.RUnlock()
	value, err := os.ReadFile(s.file(key))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return &logical.StorageEntry{Key: key, Value: value}, err
}

func (s fileStorage) Put(_ context.Context, entry *logical.StorageEntry) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	path := s.file(entry.Key)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	// A killed server leaves no half entry.
	unfinished := s.dir + ".new"
	if err := os.WriteFile(unfinished, entry.Value, 0o600); err != nil {
		return err
	}
	return os.Rename(unfinished, path)
}

func (s fileStorage) Delete(_ context.Context, key string) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	err := os.Remove(s.file(key))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

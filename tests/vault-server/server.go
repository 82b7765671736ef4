package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/vault/sdk/logical"
)

type server struct {
	lock        sync.Mutex // of everything below; requests run one after another
	dir         string
	mounts      map[string]*mount
	tokens      map[string]token
	policies    map[string][]rule
	policyTexts map[string]string
	sealed      bool
	activeNode  string
	isOld       bool
	busy        int // how many requests are still answered with 429
}

func newServer(dir, root string) *server {
	check(os.MkdirAll(dir, 0o700))
	s := &server{
		dir:         dir,
		mounts:      map[string]*mount{},
		tokens:      map[string]token{},
		policies:    map[string][]rule{},
		policyTexts: map[string]string{},
	}
	s.tokens[strings.TrimSpace(root)] = token{[]string{"root"}, time.Now().Add(24 * time.Hour)}
	s.loadMounts()
	s.loadPolicies()
	return s
}

// body is the JSON of a request.
type body map[string]interface{}

func (b body) text(name string) string {
	text, _ := b[name].(string)
	return text
}

func (b body) list(name string) []string {
	names := []string{}
	values, _ := b[name].([]interface{})
	for _, value := range values {
		if name, is := value.(string); is {
			names = append(names, name)
		}
	}
	return names
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.lock.Lock()
	defer s.lock.Unlock()
	path, found := strings.CutPrefix(r.URL.Path, "/v1/")
	if !found {
		http.NotFound(w, r)
		return
	}
	if s.activeNode != "" {
		http.Redirect(w, r, s.activeNode+r.URL.RequestURI(), http.StatusTemporaryRedirect)
		return
	}
	data := body{}
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&data); err != nil && err != io.EOF {
		fail(w, http.StatusBadRequest, "failed to parse JSON input: "+err.Error())
		return
	}
	for name, values := range r.URL.Query() {
		data[name] = values[0]
	}
	if s.isOld {
		delete(data, "associated_data")
	}
	name := r.Header.Get("X-Vault-Token")
	switch {
	case path == "sys/health":
		status := map[bool]int{true: http.StatusServiceUnavailable, false: http.StatusOK}[s.sealed]
		answer(w, status, map[string]interface{}{"initialized": true, "sealed": s.sealed, "version": "1.21.4+test"})
	case path == "sys/unseal":
		s.sealed = false
		answer(w, http.StatusOK, map[string]interface{}{"sealed": false})
	case s.sealed:
		fail(w, http.StatusServiceUnavailable, "Vault is sealed")
	case s.busy > 0 && !strings.HasPrefix(path, "sys/"):
		s.busy--
		fail(w, http.StatusTooManyRequests, "request path \"transit\": rate limit quota exceeded")
	case strings.HasPrefix(path, "auth/") && strings.HasSuffix(path, "/login"):
		s.login(w, r, path, data)
	case name == "":
		fail(w, http.StatusForbidden, "missing client token")
	case !s.valid(name):
		fail(w, http.StatusForbidden, "2 errors occurred:\n\t* permission denied\n\t* invalid token\n\n")
	case path == "auth/token/revoke-self":
		delete(s.tokens, name)
		w.WriteHeader(http.StatusNoContent)
	case strings.HasPrefix(path, "sys/") || strings.HasPrefix(path, "auth/token/"):
		if !s.allowed(name, path, "sudo") {
			denied(w)
			return
		}
		s.administer(w, r, path, data)
	default:
		s.use(w, r, name, path, data)
	}
}

// administer does what only the root token may.
func (s *server) administer(w http.ResponseWriter, r *http.Request, path string, data body) {
	err := error(nil)
	switch part := strings.SplitN(path, "/", 3); {
	case path == "sys/seal":
		s.sealed = true
	case path == "sys/test/busy": // of this server only
		s.busy = int(data["count"].(float64))
	case path == "auth/token/accessors": // here: how many tokens there are
		answer(w, http.StatusOK, map[string]interface{}{"data": map[string]int{"count": len(s.tokens)}})
		return
	case path == "auth/token/create":
		ttl, _ := time.ParseDuration(data.text("ttl"))
		name := s.newToken(data.list("policies"), ttl)
		answer(w, http.StatusOK, map[string]interface{}{"auth": map[string]string{"client_token": name}})
		return
	case len(part) == 3 && part[1] == "mounts":
		err = s.addMount(part[2], data.text("type"))
	case len(part) == 3 && part[1] == "auth":
		err = s.addMount("auth/"+part[2], data.text("type"))
	case strings.HasPrefix(path, "sys/policies/acl/"):
		err = s.setPolicy(strings.TrimPrefix(path, "sys/policies/acl/"), data.text("policy"))
	default:
		fail(w, http.StatusNotFound, "unsupported path")
		return
	}
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// request makes the request of a backend.
func (m *mount) request(r *http.Request, op logical.Operation, at, rest string, data body) *logical.Request {
	return &logical.Request{
		Operation:  op,
		Path:       rest,
		MountPoint: at,
		MountType:  m.kind,
		Storage:    m.storage,
		Data:       data,
		Headers:    r.Header,
		Connection: &logical.Connection{RemoteAddr: "127.0.0.1", ConnState: r.TLS},
	}
}

// login asks a login method, and makes a token with the policies that it grants.
func (s *server) login(w http.ResponseWriter, r *http.Request, path string, data body) {
	m, at, rest := s.route(path)
	if m == nil {
		noRoute(w, path)
		return
	}
	if m.backend == nil {
		role, found := m.jwts[data.text("role")]
		if !found || role.jwt != data.text("jwt") {
			denied(w)
			return
		}
		name := s.newToken([]string{role.policies}, 0)
		granted := map[string]string{"client_token": name, "token_type": "service"}
		answer(w, http.StatusOK, map[string]interface{}{"auth": granted})
		return
	}
	request := m.request(r, logical.UpdateOperation, at, rest, data)
	response, err := m.backend.HandleRequest(context.Background(), request)
	if status, err := logical.RespondErrorCommon(request, response, err); status != 0 || err != nil {
		logical.RespondError(w, status, err)
		return
	}
	if response.Auth == nil {
		fail(w, http.StatusInternalServerError, "the method grants nothing")
		return
	}
	response.Auth.ClientToken = s.newToken(response.Auth.Policies, response.Auth.TTL)
	answer(w, http.StatusOK, logical.LogicalResponseToHTTPResponse(response))
}

// use sends a request to an engine, if the policies of the token allow it.
func (s *server) use(w http.ResponseWriter, r *http.Request, name, path string, data body) {
	m, at, rest := s.route(path)
	op := map[string]logical.Operation{
		http.MethodGet: logical.ReadOperation, http.MethodPost: logical.UpdateOperation,
		http.MethodPut: logical.UpdateOperation, http.MethodDelete: logical.DeleteOperation,
		"LIST": logical.ListOperation,
	}[r.Method]
	if m == nil {
		// As Vault: who has no right there does not learn that nothing is mounted.
		if !s.allowed(name, path, string(op)) {
			denied(w)
			return
		}
		noRoute(w, path)
		return
	}
	if m.backend == nil {
		if !s.allowed(name, path, "sudo") {
			denied(w)
			return
		}
		m.jwts[strings.TrimPrefix(rest, "role/")] = jwtRole{data.text("jwt"), data.text("policies")}
		w.WriteHeader(http.StatusNoContent)
		return
	}
	request := m.request(r, op, at, rest, data)
	// What is not there is created, where the engine can say whether it is.
	if op == logical.UpdateOperation {
		check, exists, err := m.backend.HandleExistenceCheck(context.Background(), request)
		if err != nil && !errors.Is(err, logical.ErrUnsupportedPath) {
			logical.RespondError(w, http.StatusInternalServerError, err)
			return
		}
		if check && !exists {
			request.Operation = logical.CreateOperation
		}
	}
	if !s.allowed(name, path, string(request.Operation)) {
		denied(w)
		return
	}
	response, err := m.backend.HandleRequest(context.Background(), request)
	if status, err := logical.RespondErrorCommon(request, response, err); status != 0 || err != nil {
		if err == nil {
			answer(w, status, map[string]interface{}{"errors": []string{}})
			return
		}
		logical.RespondError(w, status, err)
		return
	}
	if response == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	// Engines can give a whole answer of HTTP, as KV does for deleted versions.
	if status, is := response.Data[logical.HTTPStatusCode].(int); is {
		w.WriteHeader(status)
		switch raw := response.Data[logical.HTTPRawBody].(type) {
		case []byte:
			w.Write(raw)
		case string:
			io.WriteString(w, raw)
		}
		return
	}
	answer(w, http.StatusOK, logical.LogicalResponseToHTTPResponse(response))
}

func answer(w http.ResponseWriter, status int, value interface{}) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(value)
}

func fail(w http.ResponseWriter, status int, what string) {
	answer(w, status, map[string]interface{}{"errors": []string{what}})
}

func denied(w http.ResponseWriter) {
	fail(w, http.StatusForbidden, "1 error occurred:\n\t* permission denied\n\n")
}

func noRoute(w http.ResponseWriter, path string) {
	fail(w, http.StatusNotFound, fmt.Sprintf("no handler for route %q. route entry not found.", path))
}

package main

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// token is what a login or the administrator made.
type token struct {
	policies []string
	end      time.Time
}

// rule is one path of a policy.
type rule struct {
	path         string
	capabilities map[string]bool
}

var (
	ruleForm       = regexp.MustCompile(`(?s)path\s+"([^"]+)"\s*\{\s*capabilities\s*=\s*\[([^\]]*)\]\s*\}`)
	capabilityForm = regexp.MustCompile(`"([a-z]+)"`)
)

func (s *server) newToken(policies []string, ttl time.Duration) string {
	bytes := make([]byte, 16)
	_, err := rand.Read(bytes)
	check(err)
	if ttl == 0 {
		ttl = time.Hour
	}
	name := "hvs." + hex.EncodeToString(bytes)
	s.tokens[name] = token{policies, time.Now().Add(ttl)}
	return name
}

// valid says whether there is such a token that has not expired.
func (s *server) valid(name string) bool {
	t, found := s.tokens[name]
	return found && time.Now().Before(t.end)
}

// allowed says whether a policy of the token gives the right on the path.
func (s *server) allowed(name, path, right string) bool {
	for _, policy := range s.tokens[name].policies {
		if policy == "root" {
			return true
		}
		for _, rule := range s.policies[policy] {
			prefix, isPrefix := strings.CutSuffix(rule.path, "*")
			if rule.capabilities[right] && (path == rule.path || isPrefix && strings.HasPrefix(path, prefix)) {
				return true
			}
		}
	}
	return false
}

func rulesOf(text string) []rule {
	rules := []rule{}
	for _, found := range ruleForm.FindAllStringSubmatch(text, -1) {
		capabilities := map[string]bool{}
		for _, name := range capabilityForm.FindAllStringSubmatch(found[2], -1) {
			capabilities[name[1]] = true
		}
		rules = append(rules, rule{found[1], capabilities})
	}
	return rules
}

func (s *server) policiesFile() string { return filepath.Join(s.dir, "policies.json") }

func (s *server) setPolicy(name, text string) error {
	if plain, err := base64.StdEncoding.DecodeString(text); err == nil {
		text = string(plain)
	}
	s.policyTexts[name] = text
	s.policies[name] = rulesOf(text)
	all, err := json.Marshal(s.policyTexts)
	if err != nil {
		return err
	}
	return os.WriteFile(s.policiesFile(), all, 0o600)
}

func (s *server) loadPolicies() {
	text, err := os.ReadFile(s.policiesFile())
	if err != nil {
		return
	}
	check(json.Unmarshal(text, &s.policyTexts))
	for name, text := range s.policyTexts {
		s.policies[name] = rulesOf(text)
	}
}

// vault-server answers the HTTP API of Vault for the tests of pgseal-provider-vault.
//
// Real: the transit engine, KV version 2, and the login methods AppRole and TLS certificates, which
// are those of Vault itself. Of this program: the routing, tokens, policies, sealing, and the login
// method Kubernetes, which compares a JWT with the configured one.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"flag"
	"log"
	"net"
	"net/http"
	"os"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "loopback address")
	addressFile := flag.String("address-file", "", "file to which the address is written")
	dir := flag.String("dir", "", "directory of the storage")
	rootFile := flag.String("root-token-file", "", "file with the root token")
	cert := flag.String("tls-cert", "", "certificate (PEM); without one, no TLS")
	key := flag.String("tls-key", "", "its key")
	clientCA := flag.String("client-ca", "", "authority that client certificates must have; without it any or none")
	standbyOf := flag.String("standby-of", "", "URL of the active node, to which every request is redirected")
	old := flag.Bool("without-associated-data", false, "ignore associated data, as Vault before 1.13")
	flag.Parse()

	root, err := os.ReadFile(*rootFile)
	check(err)
	server := newServer(*dir, string(root))
	server.activeNode = *standbyOf
	server.isOld = *old
	listener, err := net.Listen("tcp", *listen)
	check(err)
	if *cert != "" {
		pair, err := tls.LoadX509KeyPair(*cert, *key)
		check(err)
		config := &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert}
		if *clientCA != "" {
			pem, err := os.ReadFile(*clientCA)
			check(err)
			config.ClientCAs = x509.NewCertPool()
			config.ClientCAs.AppendCertsFromPEM(pem)
			config.ClientAuth = tls.RequireAndVerifyClientCert
		}
		listener = tls.NewListener(listener, config)
	}
	// The file appears whole: the test waits for it.
	check(os.WriteFile(*addressFile+".new", []byte(listener.Addr().String()), 0o644))
	check(os.Rename(*addressFile+".new", *addressFile))
	log.Fatal(http.Serve(listener, server))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// What the real engines need beyond these three follows from them: scripts/vault-server.sh
// completes a copy of this file. The module hashicorp/vault is under the Business Source License;
// it is fetched for tests, and nothing of it is in this repository or in what pgseal installs.
module pgseal.invalid/vault-server

go 1.25.3

require (
	github.com/hashicorp/vault v1.21.4
	github.com/hashicorp/vault-plugin-secrets-kv v0.25.0
	github.com/hashicorp/vault/sdk v0.25.0
)

// Groups A, B, C and K: the control plane through the JavaScript client. Creates one machine of its own.
import assert from 'node:assert/strict'
import { AuthenticationError, NotFoundError, Sandbox, SandboxError } from 'e2b'
import { machineLine, options, sandbox } from './place.mjs'

machineLine('A04 A09 B01 B08 C10 C14 C15', 'a sandbox lives and ends', async () => {
    const made = await Sandbox.create({ ...options, metadata: { 'k y': 'v&1=%' }, timeoutMs: 300_000, requestTimeoutMs: 110_000 })
    try {
        assert.match(made.sandboxId, /^[a-z0-9]+$/)
        assert.equal((await made.commands.run('echo first')).stdout, 'first\n')
        const info = await made.getInfo()
        assert.deepEqual([info.sandboxId, info.name, info.state], [made.sandboxId, 'base', 'running'])
        assert.deepEqual(info.metadata, { 'k y': 'v&1=%' })
        assert.equal(Math.round((info.endAt - info.startedAt) / 1000), 300)

        const page = await Sandbox.list({ ...options, query: { metadata: { 'k y': 'v&1=%' } } }).nextItems()
        assert.deepEqual(page.map((one) => one.sandboxId), [made.sandboxId])
        await made.setTimeout(600_000)
    } finally {
        assert.equal(await made.kill(), true)
    }
    assert.equal(await Sandbox.kill(made.sandboxId, options), false)
    assert.equal(await made.isRunning(), false)
})

machineLine('A02', 'a wrong key is an authentication error', async () => {
    await assert.rejects(Sandbox.create({ ...options, apiKey: 'wrong' }), AuthenticationError)
})

machineLine('A11 C11 C19', 'an unknown id is found to be unknown', async () => {
    assert.equal(await Sandbox.kill('nonexistingsandbox', options), false)
    await assert.rejects(Sandbox.getInfo('nonexistingsandbox', options), NotFoundError)
    await assert.rejects(Sandbox.setTimeout('nonexistingsandbox', 10_000, options), NotFoundError)
})

machineLine('B10', 'an unknown template is refused', async () => {
    await assert.rejects(Sandbox.create('no-such-template', options), SandboxError)
})

machineLine('D06', 'a second client connects by id', async () => {
    const again = await Sandbox.connect(sandbox.sandboxId, options)
    assert.equal((await again.commands.run('echo $GLOBAL')).stdout, 'from the sandbox\n')
    assert.equal(await again.isRunning(), true)
})

machineLine('K01', 'metrics are read', async () => {
    const [first] = await sandbox.getMetrics()
    for (const field of ['cpuCount', 'cpuUsedPct', 'memUsed', 'memTotal', 'diskUsed', 'diskTotal']) {
        assert.equal(typeof first[field], 'number', field)
    }
})

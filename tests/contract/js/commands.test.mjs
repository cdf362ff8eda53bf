// Groups G and H: `commands` and `pty` of the JavaScript client.
import assert from 'node:assert/strict'
import { AuthenticationError, CommandExitError, InvalidArgumentError, NotFoundError, TimeoutError } from 'e2b'
import { deferred, isMachine, line, sandbox } from './place.mjs'

const NOBODY = 4_000_000

line('G01', 'a command returns its output and code', async () => {
    const result = await sandbox.commands.run('echo hi')
    assert.deepEqual([result.stdout, result.stderr, result.exitCode], ['hi\n', '', 0])
})

line('G02 G03', 'an exit code is thrown with everything that was written', async () => {
    await assert.rejects(sandbox.commands.run('echo out; echo err >&2; exit 3'), (error) => {
        assert.ok(error instanceof CommandExitError)
        assert.deepEqual([error.exitCode, error.stdout, error.stderr], [3, 'out\n', 'err\n'])
        assert.equal(error.error, 'exit status 3')
        return true
    })
})

line('G04', 'output that ends inside a character ends in a replacement', async () => {
    const result = await sandbox.commands.run("head -c 8191 /dev/zero | tr '\\0' a; printf '\\xe2'")
    assert.equal(result.stdout, 'a'.repeat(8191) + '\ufffd')
})

line('G06', 'ten mebibytes arrive whole and in order', async () => {
    // An emulated machine takes half a minute for all; there the Python client reads them.
    const lines = isMachine ? 133_100 : 1_331_000
    const result = await sandbox.commands.run(`seq -f %.0f 1 ${lines}`, { timeoutMs: 110_000 })
    let expected = ''
    for (let n = 1; n <= lines; n += 1) expected += `${n}\n`
    assert.ok(result.stdout === expected)
})

line('G07', 'a command that takes too long dies with all it started', async () => {
    await assert.rejects(sandbox.commands.run('sleep 6543 & sleep 6543', { timeoutMs: 1500 }), TimeoutError)
    const left = await sandbox.commands.run("pgrep -fc 'sleep 654[3]' || true")
    assert.equal(left.stdout, '0\n')
})

line('G09', 'the user decides identity and home', async () => {
    const result = await sandbox.commands.run('id -un; echo $HOME', { user: 'root' })
    assert.equal(result.stdout, 'root\n/root\n')
    await assert.rejects(sandbox.commands.run('true', { user: 'nobody-of-that-name' }), AuthenticationError)
})

line('G10', 'a missing working directory is named', async () => {
    assert.equal((await sandbox.commands.run('pwd', { cwd: '/tmp' })).stdout, '/tmp\n')
    await assert.rejects(sandbox.commands.run('true', { cwd: '/no/such/place' }), (error) => {
        assert.ok(error instanceof InvalidArgumentError)
        assert.match(error.message, /does not exist/)
        return true
    })
})

line('G11 G13 G14', 'a background command is listed and killed', async () => {
    const handle = await sandbox.commands.run('sleep 600', { background: true, envs: { A: 'b' } })
    const found = (await sandbox.commands.list()).find((process) => process.pid === handle.pid)
    assert.deepEqual([found.cmd, found.args, found.envs], ['/bin/bash', ['-l', '-c', 'sleep 600'], { A: 'b' }])
    assert.equal(await sandbox.commands.kill(handle.pid), true)
    await assert.rejects(handle.wait(), (error) => {
        assert.deepEqual([error.exitCode, error.error], [-1, 'signal: killed'])
        return true
    })
    assert.equal(await sandbox.commands.kill(NOBODY), false)
})

line('G15 G16 G18', 'two connections see later output and the end', async () => {
    const first = await sandbox.commands.run('read go; echo said $go', { background: true, stdin: true })
    const others = await Promise.all([sandbox.commands.connect(first.pid), sandbox.commands.connect(first.pid)])
    await sandbox.commands.sendStdin(first.pid, 'now\n')
    for (const handle of [first, ...others]) assert.equal((await handle.wait()).stdout, 'said now\n')
    await assert.rejects(sandbox.commands.connect(NOBODY), NotFoundError)
})

line('G19', 'closed input ends a reader', async () => {
    const handle = await sandbox.commands.run('cat; echo end', { background: true, stdin: true })
    await sandbox.commands.sendStdin(handle.pid, 'text ☃\n')
    await sandbox.commands.closeStdin(handle.pid)
    assert.equal((await handle.wait()).stdout, 'text ☃\nend\n')
})

line('G23', 'a disconnected command runs on', async () => {
    const handle = await sandbox.commands.run('read word; echo got $word', { background: true, stdin: true })
    await handle.disconnect()
    const again = await sandbox.commands.connect(handle.pid)
    await sandbox.commands.sendStdin(handle.pid, 'it\n')
    assert.equal((await again.wait()).stdout, 'got it\n')
})

line('G26', 'a hundred commands at once all answer', async () => {
    const results = await Promise.all(
        Array.from({ length: 100 }, (_, n) => sandbox.commands.run(`sleep 0.2; echo ${n}`, { timeoutMs: 110_000 }))
    )
    assert.deepEqual(results.map((result) => result.stdout), Array.from({ length: 100 }, (_, n) => `${n}\n`))
})

line('G32', 'environment values survive', async () => {
    const value = 'two\nlines a=b ü☃🚀 \'"$HOME'
    const result = await sandbox.commands.run('printf %s "$VALUE"', { envs: { VALUE: value } })
    assert.equal(result.stdout, value)
})

line('H01 H02 H05', 'a terminal answers, changes its size and ends', async () => {
    const chunks = []
    const shown = () => Buffer.concat(chunks).toString()
    const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData: (data) => chunks.push(data) })
    await sandbox.pty.resize(terminal.pid, { cols: 100, rows: 30 })
    await sandbox.pty.sendInput(terminal.pid, Buffer.from('stty size; echo $((100+23)) $TERM; exit\n'))
    assert.equal((await terminal.wait()).exitCode, 0)
    assert.match(shown(), /30 100\r\n123 xterm-256color/)
})

line('H03', 'a killed terminal is told from one that never was', async () => {
    const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData: () => {} })
    assert.equal(await sandbox.pty.kill(terminal.pid), true)
    await assert.rejects(terminal.wait(), (error) => error.error === 'signal: killed')
    assert.equal(await sandbox.pty.kill(terminal.pid), false)
})

line('H04', 'a terminal is found again as it was left', async () => {
    const ready = deferred()
    const onData = (data) => Buffer.from(data).includes('ready') && ready.resolve()
    const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData })
    await sandbox.pty.sendInput(terminal.pid, Buffer.from("KEPT=still; echo rea''dy\n"))
    await ready.promise
    await terminal.disconnect()

    const chunks = []
    const again = await sandbox.pty.connect(terminal.pid, { onData: (data) => chunks.push(data) })
    await sandbox.pty.sendInput(terminal.pid, Buffer.from('echo $KEPT-here; exit\n'))
    await again.wait()
    assert.ok(Buffer.concat(chunks).includes('still-here'))
})

// Groups I and J: `files` of the JavaScript client.
import assert from 'node:assert/strict'
import { FileNotFoundError, FileType, FilesystemEventType, InvalidArgumentError } from 'e2b'
import { deferred, freshDirectory, line, machineLine, sandbox } from './place.mjs'

line('I01 I02 I05', 'what was written is read', async () => {
    const directory = await freshDirectory()
    const written = await sandbox.files.write(`${directory}/file`, 'a long text ☃')
    assert.deepEqual([written.path, written.name, written.type], [`${directory}/file`, 'file', FileType.FILE])
    assert.equal(await sandbox.files.read(`${directory}/file`), 'a long text ☃')

    const bytes = new Uint8Array([0, 255, 10, 13])
    await sandbox.files.write(`${directory}/file`, bytes.buffer)
    assert.deepEqual(new Uint8Array(await sandbox.files.read(`${directory}/file`, { format: 'bytes' })), bytes)
    await sandbox.files.write(`${directory}/empty`, '')
    assert.equal(await sandbox.files.read(`${directory}/empty`), '')
})

line('I06 I34', 'many files with odd names go in one request', async () => {
    const directory = await freshDirectory()
    const names = ['plain', 'sub/dir/file', 'ü ☃', 'with "quotes"', 'a+b', '100%25', 'a#b', 'a&b=c']
    const entries = names.map((name) => ({ path: `${directory}/${name}`, data: `content of ${name}` }))
    const written = await sandbox.files.write(entries)
    assert.deepEqual(written.map((info) => info.path), entries.map((entry) => entry.path))
    for (const { path, data } of entries) assert.equal(await sandbox.files.read(path), data)
    for (const name of names.slice(2)) {
        await sandbox.files.write(`${directory}/${name}`, 'alone')
        assert.equal(await sandbox.files.read(`${directory}/${name}`), 'alone')
    }
})

line('I08', 'a stream is uploaded as it comes', async () => {
    const directory = await freshDirectory()
    const blob = new Blob([new Uint8Array(8 << 20).fill(90)])
    await sandbox.files.write(`${directory}/stream`, blob.stream(), { useOctetStream: true })
    await sandbox.files.write(`${directory}/blob`, blob)
    const sizes = await sandbox.commands.run(`stat -c %s ${directory}/*`)
    assert.equal(sizes.stdout, `${8 << 20}\n${8 << 20}\n`)
})

line('I09', 'compressed transfers carry the same bytes', async () => {
    const directory = await freshDirectory()
    const text = 'compress me '.repeat(10_000)
    await sandbox.files.write(`${directory}/file`, text, { gzip: true })
    assert.equal((await sandbox.commands.run(`stat -c %s ${directory}/file`)).stdout, `${text.length}\n`)
    assert.equal(await sandbox.files.read(`${directory}/file`, { gzip: true }), text)
})

line('I10 I15', 'what is no file is an error of its kind', async () => {
    const directory = await freshDirectory()
    await assert.rejects(sandbox.files.read(`${directory}/missing`), FileNotFoundError)
    await assert.rejects(sandbox.files.read(directory), InvalidArgumentError)
    await assert.rejects(sandbox.files.getInfo(`${directory}/missing`), FileNotFoundError)
    assert.equal(await sandbox.files.exists(`${directory}/missing`), false)
    assert.equal(await sandbox.files.exists(directory), true)
})

line('I11', 'a stream can be left early', async () => {
    const directory = await freshDirectory()
    await sandbox.files.write(`${directory}/file`, 'x'.repeat(4 << 20))
    const stream = await sandbox.files.read(`${directory}/file`, { format: 'stream' })
    const reader = stream.getReader()
    assert.ok((await reader.read()).value.length > 0)
    await reader.cancel()
    assert.equal((await sandbox.files.read(`${directory}/file`)).length, 4 << 20)
})

line('I13 I17', 'entries are described', async () => {
    const directory = await freshDirectory()
    await sandbox.files.write(`${directory}/file`, '12345')
    await sandbox.commands.run(`ln -s file ${directory}/link`)
    const file = await sandbox.files.getInfo(`${directory}/file`)
    assert.deepEqual([file.type, file.size, file.mode, file.permissions], [FileType.FILE, 5, 0o644, '-rw-r--r--'])
    assert.deepEqual([file.owner, file.group], ['user', 'user'])
    assert.ok(file.modifiedTime instanceof Date)
    const link = await sandbox.files.getInfo(`${directory}/link`)
    assert.deepEqual([link.type, link.symlinkTarget], [FileType.FILE, `${directory}/file`])
})

line('I19 I20 I21', 'a list is depth-first and sorted', async () => {
    const directory = await freshDirectory()
    await sandbox.commands.run(`cd ${directory}; mkdir -p b/y a; touch b/1 c; ln -s nowhere broken`)
    const listed = async (depth) =>
        (await sandbox.files.list(directory, { depth })).map((entry) => entry.path.slice(directory.length + 1))
    assert.deepEqual(await listed(1), ['a', 'b', 'c'])
    assert.deepEqual(await listed(2), ['a', 'b', 'b/1', 'b/y', 'c'])
    await assert.rejects(sandbox.files.list(`${directory}/missing`), FileNotFoundError)
    await assert.rejects(sandbox.files.list(`${directory}/c`), InvalidArgumentError)
})

line('I22 I23 I24', 'directories are made once, things are moved and removed', async () => {
    const directory = await freshDirectory()
    assert.equal(await sandbox.files.makeDir(`${directory}/a/b`), true)
    assert.equal(await sandbox.files.makeDir(`${directory}/a/b`), false)
    await sandbox.files.write(`${directory}/a/b/file`, 'x')
    const moved = await sandbox.files.rename(`${directory}/a/b/file`, `${directory}/c/d`)
    assert.equal(moved.path, `${directory}/c/d`)
    await assert.rejects(sandbox.files.rename(`${directory}/missing`, `${directory}/x`), FileNotFoundError)
    await sandbox.files.remove(`${directory}/a`)
    await sandbox.files.remove(`${directory}/a`)
    assert.equal(await sandbox.files.exists(`${directory}/a`), false)
})

line('I25', 'metadata stays with a file', async () => {
    const directory = await freshDirectory()
    const written = await sandbox.files.write(`${directory}/file`, 'x', { metadata: { Author: 'me' } })
    assert.deepEqual(written.metadata, { author: 'me' })
    assert.deepEqual((await sandbox.files.getInfo(`${directory}/file`)).metadata, { author: 'me' })
})

machineLine('I27', 'signed addresses work without headers', async () => {
    const directory = await freshDirectory()
    const upload = await sandbox.uploadUrl(`${directory}/a b`, { useSignatureExpiration: 60 })
    const form = new FormData()
    form.append('file', new Blob(['signed']), 'ignored')
    assert.equal((await fetch(viaServer(upload), { method: 'POST', body: form, headers: routing() })).status, 200)
    const download = await sandbox.downloadUrl(`${directory}/a b`)
    assert.equal(await (await fetch(viaServer(download), { headers: routing() })).text(), 'signed')
})

line('J01 J02 J08', 'a watch calls back until it is stopped', async () => {
    const directory = await freshDirectory()
    const seen = new Set()
    const all = deferred()
    const exit = deferred()
    const onEvent = (event) => {
        seen.add(`${event.type} ${event.name}`)
        if (seen.has(`${FilesystemEventType.CREATE} new`) && seen.has(`${FilesystemEventType.WRITE} new`)) all.resolve()
    }
    const watch = await sandbox.files.watchDir(directory, onEvent, { onExit: exit.resolve })
    await sandbox.files.write(`${directory}/new`, 'x')
    await all.promise
    await watch.stop()
    await exit.promise
})

line('J03 J05', 'a deep watch brings entries', async () => {
    const directory = await freshDirectory()
    const seen = deferred()
    const onEvent = (event) => event.name === 'sub/file' && event.type === FilesystemEventType.WRITE && seen.resolve(event)
    await sandbox.files.makeDir(`${directory}/sub`)
    const watch = await sandbox.files.watchDir(directory, onEvent, { recursive: true, includeEntry: true })
    await sandbox.files.write(`${directory}/sub/file`, 'x')
    assert.equal((await seen.promise).entry.path, `${directory}/sub/file`)
    await watch.stop()
})

line('J06', 'only directories are watched', async () => {
    const directory = await freshDirectory()
    await assert.rejects(sandbox.files.watchDir(`${directory}/missing`, () => {}), FileNotFoundError)
})

function viaServer(url) {
    return url.replace(/^https?:\/\/[^/]+/, process.env.AENV_CONTRACT_URL)
}

function routing() {
    return { 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': '49983' }
}
